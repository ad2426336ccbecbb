// JSON Schemas of proto messages as spec::ToJson writes and spec::ParseMessage reads them.
#pragma once

#include <map>
#include <set>
#include <string>

#include "google/protobuf/descriptor.h"
#include "nlohmann/json.hpp"

namespace tessera::services {

using Json = nlohmann::ordered_json;

// The comment above or behind the declaration; "" when there is none or the pool has no sources.
std::string CommentOf(const google::protobuf::FieldDescriptor* field);
std::string CommentOf(const google::protobuf::MethodDescriptor* method);

// The message with its comments, which the generated descriptors lack. `name` must exist.
const google::protobuf::Descriptor* SourcesOf(const std::string& name);
const google::protobuf::DescriptorPool& SourcePool();

// Collects the messages that are referred to. Not thread-safe.
class Schemas {
 public:
  // {"$ref": ...}, and the message is among All().
  Json Reference(const google::protobuf::Descriptor* type);
  // Of a field as a property or query parameter, its description included.
  Json OfField(const google::protobuf::FieldDescriptor* field);
  // Of one value of the field, also where it is repeated.
  Json OfElement(const google::protobuf::FieldDescriptor* field) { return OfValue(field); }
  // An object of the message's fields without `left_out` (proto names).
  Json Object(const google::protobuf::Descriptor* type, const std::set<std::string>& left_out);
  const std::map<std::string, Json>& All() const { return all_; }

 private:
  Json OfValue(const google::protobuf::FieldDescriptor* field);

  std::map<std::string, Json> all_;  // by short name
};

}  // namespace tessera::services

#include "services/openapi/schema.h"

#include <cstdint>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/embedded_file.h"
#include "google/protobuf/descriptor.pb.h"
#include "proto/tessera/v1/field_names.h"

namespace tessera {
absl::Span<const EmbeddedFile> ProtoSources();  // a FileDescriptorSet with comments
}

namespace tessera::services {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr char kDurationPattern[] = R"(^-?([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$)";

// Numbers that a run which diverges makes NaN or infinite; they are then written as strings.
bool MayBeNoNumber(const FieldDescriptor* field) {
  return absl::StrContains(field->name(), "loss") || field->name() == "gradient_norm";
}

template <typename T>
std::string Comment(const T* declared) {
  google::protobuf::SourceLocation location;
  if (!declared->GetSourceLocation(&location)) return "";
  const std::string& text =
      location.leading_comments.empty() ? location.trailing_comments : location.leading_comments;
  std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  return absl::StrJoin(words, " ");
}

template <typename T>
Json Integer(const char* format) {
  return {{"type", "integer"},
          {"format", format},
          {"minimum", std::numeric_limits<T>::min()},
          {"maximum", std::numeric_limits<T>::max()}};
}

Json Enumeration(const google::protobuf::EnumDescriptor* type) {
  Json names = Json::array();
  for (int i = 0; i < type->value_count(); ++i) {
    if (type->value(i)->number() != 0) names.push_back(spec::ShortEnumName(type->value(i)));
  }
  return {{"type", "string"}, {"enum", names}};
}

}  // namespace

const google::protobuf::DescriptorPool& SourcePool() {
  static const auto* pool = [] {
    google::protobuf::FileDescriptorSet files;
    const std::string_view bytes = ProtoSources()[0].content;
    TESSERA_CHECK(files.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
    auto* built = new google::protobuf::DescriptorPool();
    for (const auto& file : files.file()) TESSERA_CHECK(built->BuildFile(file) != nullptr);
    return built;
  }();
  return *pool;
}

const Descriptor* SourcesOf(const std::string& name) {
  const Descriptor* type = SourcePool().FindMessageTypeByName(name);
  TESSERA_CHECK(type != nullptr);
  return type;
}

std::string CommentOf(const FieldDescriptor* field) { return Comment(field); }
std::string CommentOf(const google::protobuf::MethodDescriptor* method) { return Comment(method); }

Json Schemas::OfValue(const FieldDescriptor* field) {
  switch (field->type()) {
    case FieldDescriptor::TYPE_BOOL:
      return {{"type", "boolean"}};
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FLOAT:
      if (MayBeNoNumber(field)) return {{"type", {"number", "string"}}, {"format", "double"}};
      return {{"type", "number"}, {"format", "double"}};
    case FieldDescriptor::TYPE_FIXED64:
      return {{"type", "string"}, {"pattern", "^0x[0-9a-f]{16}$"}};
    case FieldDescriptor::TYPE_INT32:
      return Integer<int32_t>("int32");
    case FieldDescriptor::TYPE_UINT32:
      return Integer<uint32_t>("int64");
    case FieldDescriptor::TYPE_INT64:
      return Integer<int64_t>("int64");
    case FieldDescriptor::TYPE_UINT64:
      return {{"type", "integer"}, {"minimum", 0}, {"maximum", std::numeric_limits<uint64_t>::max()}};
    case FieldDescriptor::TYPE_BYTES:
      return {{"type", "string"}, {"contentEncoding", "base64"}};
    case FieldDescriptor::TYPE_ENUM:
      return Enumeration(field->enum_type());
    case FieldDescriptor::TYPE_MESSAGE:
      return Reference(field->message_type());
    default:
      return {{"type", "string"}};
  }
}

Json Schemas::OfField(const FieldDescriptor* field) {
  Json schema;
  if (field->is_map()) {
    schema = {{"type", "object"}, {"additionalProperties", OfValue(field->message_type()->map_value())}};
  } else if (field->is_repeated()) {
    schema = {{"type", "array"}, {"items", OfValue(field)}};
  } else {
    schema = OfValue(field);
  }
  const std::string comment = CommentOf(field);
  if (!comment.empty()) schema["description"] = comment;
  if (absl::StrContains(comment, "output only")) schema["readOnly"] = true;
  return schema;
}

Json Schemas::Object(const Descriptor* type, const std::set<std::string>& left_out) {
  Json properties = Json::object();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (!left_out.contains(field->name())) properties[field->json_name()] = OfField(field);
  }
  return {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
}

Json Schemas::Reference(const Descriptor* type) {
  const std::string& name = type->full_name();
  if (name == "google.protobuf.Timestamp") return {{"type", "string"}, {"format", "date-time"}};
  if (name == "google.protobuf.Duration") return {{"type", "string"}, {"pattern", kDurationPattern}};
  if (name == "google.protobuf.FieldMask") return {{"type", "string"}};
  if (name == "google.protobuf.Empty") return {{"type", "object"}, {"additionalProperties", false}};
  if (!all_.contains(type->name())) {
    all_[type->name()] = Json();  // messages may contain each other
    all_[type->name()] = Object(type, {});
  }
  return {{"$ref", absl::StrCat("#/components/schemas/", type->name())}};
}

}  // namespace tessera::services

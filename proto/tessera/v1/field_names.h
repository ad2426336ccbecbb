// What words of a text name: fields and enum values of the schema, and what was probably meant by one that
// names none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace tessera::spec {

// The field of `type` called `key`, in either spelling (warmupSteps, warmup_steps); nullptr when none.
const google::protobuf::FieldDescriptor* FindField(const google::protobuf::Descriptor* type,
                                                   const std::string& key);

// Paths of fields below `type`, down to `depth`, that are called like `word`: "schedule.steps" for "steps".
// Each begins with `prefix`.
std::vector<std::string> FindElsewhere(const google::protobuf::Descriptor* type, const std::string& word,
                                       const std::string& prefix, int depth);

// "workres" -> "workers" from `candidates`; empty when nothing is near.
std::string Nearest(const std::string& word, const std::vector<std::string>& candidates);

// The value of `type` that `text` names; nullptr when none.
const google::protobuf::EnumValueDescriptor* FindEnumValue(const google::protobuf::EnumDescriptor* type,
                                                           std::string_view text);

// "block" for GRANULARITY_BLOCK.
std::string ShortEnumName(const google::protobuf::EnumValueDescriptor* value);

}  // namespace tessera::spec

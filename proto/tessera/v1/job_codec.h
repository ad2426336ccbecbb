// Text <-> messages, by descriptor reflection.
//
// Reading: YAML or JSON. Field names in camelCase or snake_case; enums by short
// lower-case name (`block`; BLOCK and GRANULARITY_BLOCK work too); durations as
// "30s" or "5m"; `*_bytes` as a number or a quantity ("512MiB", "2Gi", "1.5GB");
// timestamps in RFC 3339. Every fault of the text is reported at once
// (ViolationsFrom), with path, line (YAML), found value and remedy.
//
// Writing: camelCase, short lower-case enums, 64-bit integers as numbers (fixed64,
// which holds fingerprints, as "0x..." strings), fields at their default omitted.
// Whatever is written is read back as the same message.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "proto/tessera/v1/violation.h"
#include "tessera/v1/job.pb.h"

namespace tessera::spec {

inline constexpr size_t kMaxTextBytes = 1 << 20;

// A job file: the plain form {name, namespace, spec} or the Kubernetes form
// {apiVersion, kind, metadata: {name, namespace}, spec}. Output-only fields (uid,
// etag, createTime, status) are accepted and dropped. Applies no defaults and does
// not Validate.
absl::StatusOr<v1::TrainingJob> ParseJob(std::string_view text);

// Any message, strictly. `message` is cleared first; unspecified after an error.
absl::Status ParseMessage(std::string_view text, google::protobuf::Message* message);

nlohmann::ordered_json ToJsonValue(const google::protobuf::Message& message);
std::string ToJson(const google::protobuf::Message& message);        // one line
std::string ToPrettyJson(const google::protobuf::Message& message);  // indented, ends in a newline
std::string ToYaml(const google::protobuf::Message& message);        // ends in a newline

// "running" for JOB_STATE_RUNNING, "unspecified" for 0.
std::string EnumName(const google::protobuf::EnumDescriptor* type, int number);

// EnumName(job.status().state()).
template <typename Enum>
std::string EnumName(Enum value) {
  return EnumName(google::protobuf::GetEnumDescriptor<Enum>(), value);
}

}  // namespace tessera::spec

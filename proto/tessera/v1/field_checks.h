// The checks that Validate consists of: each names its field the way the job file does.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/quantity.h"
#include "proto/tessera/v1/violation.h"
#include "tessera/v1/job.pb.h"

namespace tessera::spec {

// A value as a violation shows it.
std::string Show(double value);
inline std::string Show(int64_t value) { return absl::StrCat(value); }
inline std::string Show(int32_t value) { return absl::StrCat(value); }
inline std::string Show(const std::string& value) { return absl::StrCat("\"", value.substr(0, 60), "\""); }

// Collects faults.
class Checks {
 public:
  void Add(std::string path, std::string value, std::string message, std::string remedy = "") {
    found_.push_back({.path = std::move(path),
                      .value = std::move(value),
                      .message = std::move(message),
                      .remedy = std::move(remedy)});
  }
  void NotYet(std::string path, std::string value, std::string remedy) {
    found_.push_back({.path = std::move(path),
                      .value = std::move(value),
                      .message = "is not available in this version",
                      .remedy = std::move(remedy),
                      .unimplemented = true});
  }
  template <typename T>
  void AtLeast(const std::string& path, T value, T least) {
    if (!(value >= least)) Add(path, Show(value), absl::StrCat("must be at least ", Show(least)));
  }
  // low <= value <= high
  template <typename T>
  void Within(const std::string& path, T value, T low, T high) {
    if (!(value >= low && value <= high)) {
      Add(path, Show(value), absl::StrCat("must be from ", Show(low), " to ", Show(high)));
    }
  }
  // low < value <= high
  void Above(const std::string& path, double value, double low, double high) {
    if (!(value > low && value <= high)) {
      Add(path, Show(value), absl::StrCat("must be above ", Show(low), " and at most ", Show(high)));
    }
  }
  // 0 <= value < 1
  void BelowOne(const std::string& path, double value) {
    if (!(value >= 0 && value < 1)) Add(path, Show(value), "must be at least 0 and below 1");
  }
  template <typename Enum>
  void KnownEnum(const std::string& path, Enum value) {
    if (google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value) == nullptr) {
      Add(path, Show(static_cast<int32_t>(value)), "is not a known value");
    }
  }
  template <typename Enum>
  void OnlyEnum(const std::string& path, Enum value, Enum available) {
    if (value == available) return;
    if (google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value) == nullptr) {
      Add(path, Show(static_cast<int32_t>(value)), "is not a known value");
    } else {
      NotYet(path, EnumName(value), absl::StrCat("use ", EnumName(available)));
    }
  }
  void NotNegative(const std::string& path, const google::protobuf::Duration& duration) {
    if (duration.seconds() < 0 || duration.nanos() < 0) {
      Add(path, FormatDuration(duration), "must not be negative");
    }
  }
  std::vector<Violation> Take() { return std::move(found_); }

 private:
  std::vector<Violation> found_;
};

// spec.dropping, with what of the rest of the job it depends on.
void CheckDropping(const v1::TrainingJobSpec& spec, Checks* checks);

}  // namespace tessera::spec

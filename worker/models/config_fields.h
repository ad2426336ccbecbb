// Reading a model's config.json, with errors that name the field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::worker {

// InvalidArgument: config.json: FIELD: WHAT.
absl::Status InvalidField(const std::string& field, const std::string& what);
// Unimplemented: the field asks for arithmetic that the model does not have.
absl::Status UnsupportedField(const std::string& field, const nlohmann::json& value);

absl::StatusOr<nlohmann::json> ParseConfigObject(const std::string& text);

// The first error stays in `status`; what is read after it is meaningless.
struct ConfigFields {
  explicit ConfigFields(const nlohmann::json& config) : object(config) {}

  const nlohmann::json& object;
  absl::Status status = absl::OkStatus();

  const nlohmann::json* Find(const char* name) const;  // null: absent or null
  // Positive. fallback 0: the field is required.
  int64_t Integer(const char* name, int64_t fallback);
  std::vector<int64_t> Integers(const char* name, std::vector<int64_t> fallback);
  double Number(const char* name, double fallback);  // positive
  bool Flag(const char* name, bool fallback);
  std::string Word(const char* name, const std::string& fallback, const std::vector<std::string>& allowed);
  // Unsupported unless the field is absent or has this value.
  void Only(const char* name, const nlohmann::json& value);
};

}  // namespace tessera::worker

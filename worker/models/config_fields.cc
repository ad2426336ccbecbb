#include "worker/models/config_fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::worker {

using nlohmann::json;

absl::Status InvalidField(const std::string& field, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("config.json: ", field, ": ", what));
}

absl::Status UnsupportedField(const std::string& field, const json& value) {
  return absl::UnimplementedError(
      absl::StrCat("config.json: ", field, " = ", value.dump(), " is not supported"));
}

absl::StatusOr<json> ParseConfigObject(const std::string& text) {
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("config.json is no JSON object");
  return object;
}

const json* ConfigFields::Find(const char* name) const {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

int64_t ConfigFields::Integer(const char* name, int64_t fallback) {
  const json* value = Find(name);
  if (value == nullptr) {
    if (fallback == 0) status.Update(InvalidField(name, "is missing"));
    return fallback;
  }
  if (!value->is_number_integer() || value->get<int64_t>() <= 0) {
    status.Update(InvalidField(name, absl::StrCat("must be a positive integer, is ", value->dump())));
    return 1;
  }
  return value->get<int64_t>();
}

std::vector<int64_t> ConfigFields::Integers(const char* name, std::vector<int64_t> fallback) {
  const json* value = Find(name);
  if (value == nullptr) return fallback;
  const auto positive = [](const json& entry) {
    return entry.is_number_integer() && entry.get<int64_t>() > 0;
  };
  if (!value->is_array() || value->empty() || !std::all_of(value->begin(), value->end(), positive)) {
    status.Update(
        InvalidField(name, absl::StrCat("must be a list of positive integers, is ", value->dump())));
    return fallback;
  }
  return value->get<std::vector<int64_t>>();
}

double ConfigFields::Number(const char* name, double fallback) {
  const json* value = Find(name);
  if (value == nullptr) return fallback;
  if (!value->is_number() || !(value->get<double>() > 0)) {
    status.Update(InvalidField(name, absl::StrCat("must be a positive number, is ", value->dump())));
    return fallback;
  }
  return value->get<double>();
}

bool ConfigFields::Flag(const char* name, bool fallback) {
  const json* value = Find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    status.Update(InvalidField(name, absl::StrCat("must be true or false, is ", value->dump())));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigFields::Word(const char* name, const std::string& fallback,
                               const std::vector<std::string>& allowed) {
  const json* value = Find(name);
  if (value == nullptr) return fallback;
  std::string word = value->is_string() ? value->get<std::string>() : std::string();
  if (!value->is_string() || std::find(allowed.begin(), allowed.end(), word) == allowed.end()) {
    status.Update(InvalidField(
        name, absl::StrCat("must be one of ", absl::StrJoin(allowed, ", "), ", is ", value->dump())));
    return fallback;
  }
  return word;
}

void ConfigFields::Only(const char* name, const json& wanted) {
  const json* value = Find(name);
  if (value != nullptr && *value != wanted) status.Update(UnsupportedField(name, *value));
}

}  // namespace tessera::worker

#include "proto/tessera/v1/violation.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace tessera::spec {
namespace {

nlohmann::json ToValue(const Violation& v) {
  return {{"path", v.path},     {"value", v.value}, {"message", v.message},
          {"remedy", v.remedy}, {"line", v.line},   {"unimplemented", v.unimplemented}};
}

}  // namespace

std::string ToLine(const Violation& v) {
  std::string line = v.path;
  if (v.line > 0)
    absl::StrAppend(&line, line.empty() ? "" : " ", line.empty() ? "line " : "(line ", v.line,
                    line.empty() ? "" : ")");
  if (!line.empty()) absl::StrAppend(&line, ": ");
  absl::StrAppend(&line, v.message);
  if (!v.value.empty()) absl::StrAppend(&line, ", found ", v.value);
  if (!v.remedy.empty()) absl::StrAppend(&line, "; ", v.remedy);
  return line;
}

absl::Status MakeInvalid(const std::vector<Violation>& violations) {
  if (violations.empty()) return absl::OkStatus();
  const bool unimplemented =
      std::all_of(violations.begin(), violations.end(), [](const Violation& v) { return v.unimplemented; });
  const std::string text = absl::StrJoin(
      violations, "\n", [](std::string* out, const Violation& v) { absl::StrAppend(out, ToLine(v)); });
  absl::Status status = unimplemented ? absl::UnimplementedError(text) : absl::InvalidArgumentError(text);
  nlohmann::json list = nlohmann::json::array();
  for (const Violation& v : violations) list.push_back(ToValue(v));
  status.SetPayload(absl::string_view(kViolationsPayload.data(), kViolationsPayload.size()),
                    absl::Cord(list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  return status;
}

std::vector<Violation> ViolationsFrom(const absl::Status& status) {
  std::vector<Violation> violations;
  const auto payload =
      status.GetPayload(absl::string_view(kViolationsPayload.data(), kViolationsPayload.size()));
  if (!payload.has_value()) return violations;
  const auto list = nlohmann::json::parse(std::string(*payload), nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return violations;
  for (const auto& entry : list) {
    if (!entry.is_object()) continue;
    violations.push_back({.path = entry.value("path", ""),
                          .value = entry.value("value", ""),
                          .message = entry.value("message", ""),
                          .remedy = entry.value("remedy", ""),
                          .line = entry.value("line", 0),
                          .unimplemented = entry.value("unimplemented", false)});
  }
  return violations;
}

}  // namespace tessera::spec

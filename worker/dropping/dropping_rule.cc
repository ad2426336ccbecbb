#include "worker/dropping/dropping_rule.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace tessera::worker {
namespace {

using Rules = std::map<std::string, std::unique_ptr<DroppingRule>, std::less<>>;

Rules& Registry() {
  static auto* const rules = new Rules;
  return *rules;
}

}  // namespace

bool RegisterDroppingRule(std::unique_ptr<DroppingRule> rule) {
  const std::string name(rule->name());
  TESSERA_CHECK(Registry().emplace(name, std::move(rule)).second);
  return true;
}

std::vector<const DroppingRule*> DroppingRules() {
  std::vector<const DroppingRule*> rules;
  for (const auto& [name, rule] : Registry()) rules.push_back(rule.get());
  return rules;
}

absl::StatusOr<const DroppingRule*> FindDroppingRule(absl::string_view name) {
  const auto found = Registry().find(name);
  if (found != Registry().end()) return found->second.get();
  const auto spell = [](std::string* out, const Rules::value_type& entry) { out->append(entry.first); };
  return absl::InvalidArgumentError(absl::StrCat("spec.dropping.rule: '", name, "' is not known; use one of ",
                                                 absl::StrJoin(Registry(), ", ", spell)));
}

}  // namespace tessera::worker

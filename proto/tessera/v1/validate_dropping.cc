#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "proto/tessera/v1/dropping_rules.h"
#include "proto/tessera/v1/field_checks.h"

namespace tessera::spec {
namespace {

constexpr int64_t kLeastRecompute = 20;  // steps: as many as a change of budgets is judged by

// With dropping off its other fields say nothing, and are more likely a forgotten mode than meant.
void CheckDroppingIsEmpty(const v1::DroppingSpec& dropping, Checks* checks) {
  v1::DroppingSpec rest = dropping;
  rest.clear_mode();
  const nlohmann::ordered_json fields = ToJsonValue(rest);
  for (const auto& [name, value] : fields.items()) {
    checks->Add(absl::StrCat("spec.dropping.", name), value.dump(), "needs spec.dropping.mode",
                "set spec.dropping.mode to enforce, or remove it");
  }
}

void CheckDroppingRule(const v1::TrainingJobSpec& spec, Checks* checks) {
  const v1::DroppingSpec& dropping = spec.dropping();
  if (dropping.rule().empty()) return;  // the planner's choice
  const DroppingRuleTraits* rule = FindDroppingRule(dropping.rule());
  if (rule == nullptr) {
    std::string names;
    for (const DroppingRuleTraits& known : kDroppingRules)
      absl::StrAppend(&names, names.empty() ? "" : ", ", known.name);
    checks->Add("spec.dropping.rule", Show(dropping.rule()), "is not known",
                absl::StrCat("use one of ", names));
    return;
  }
  const double share = dropping.has_importance_share() ? dropping.importance_share() : rule->default_share;
  if (rule->needs_moments && share > 0 && spec.optimizer().name() != "adamw") {
    checks->Add(
        "spec.dropping.rule", Show(dropping.rule()),
        absl::StrCat("needs the moments of adamw, and spec.optimizer.name is ", spec.optimizer().name()),
        "use rotation, or cyclic_top_k with a residual");
  }
  if (rule->needs_residual && share > 0 && dropping.residual() == v1::RESIDUAL_KEEP_NONE) {
    checks->Add("spec.dropping.residual", "none",
                absl::StrCat("leaves rule ", dropping.rule(), " nothing to pick by"),
                "use bf16, fp32 or auto");
  }
  if (rule->picks_alone && share > 0) {
    const char* with = spec.sharding() == v1::SHARDING_FSDP ? "spec.sharding fsdp"
                       : dropping.worker_limits_size() > 0  ? "spec.dropping.workerLimits"
                       : spec.resources().gpus() > 0        ? "spec.resources.gpus"
                                                            : nullptr;
    if (with != nullptr) {
      checks->Add("spec.dropping.rule", Show(dropping.rule()),
                  absl::StrCat("lets every holder pick for itself, which is not available with ", with),
                  "use cyclic_top_k");
    }
  }
  // What is picked by the gradient itself may be anything.
  const bool fresh = rule->picks_alone || rule->name == "random";
  if (!rule->needs_residual && !fresh && share >= 1 && dropping.residual() == v1::RESIDUAL_KEEP_NONE) {
    checks->Add("spec.dropping.importanceShare", Show(share),
                "leaves no element to the rotation: without a residual some would never move",
                "use at most 0.9");
  }
}

void CheckLimits(const google::protobuf::RepeatedPtrField<v1::DensityLimit>& limits, const std::string& name,
                 const char* whom, Checks* checks) {
  for (int i = 0; i < limits.size(); ++i) {
    const v1::DensityLimit& limit = limits[i];
    const std::string path = absl::StrCat(name, "[", i, "]");
    if (limit.pattern().empty()) {
      checks->Add(path + ".pattern", "''", "is empty", absl::StrCat("name ", whom, ", or *"));
    }
    checks->Within<double>(path + ".min", limit.min(), 0, 1);
    if (limit.has_max()) checks->Above(path + ".max", limit.max(), 0, 1);
    if (limit.has_max() && limit.min() > limit.max()) {
      checks->Add(path + ".min", Show(limit.min()), absl::StrCat("is above max, ", limit.max()), "lower it");
    }
  }
}

}  // namespace

void CheckDropping(const v1::TrainingJobSpec& spec, Checks* checks) {
  const v1::DroppingSpec& dropping = spec.dropping();
  if (dropping.mode() == v1::DROPPING_MODE_OFF) return CheckDroppingIsEmpty(dropping, checks);
  if (!v1::DroppingMode_IsValid(dropping.mode())) {
    checks->Add("spec.dropping.mode", Show(static_cast<int32_t>(dropping.mode())), "is not a known value");
  }
  if (!v1::ResidualKeep_IsValid(dropping.residual())) {
    checks->Add("spec.dropping.residual", Show(static_cast<int32_t>(dropping.residual())),
                "is not a known value");
  }
  checks->Above("spec.dropping.density", dropping.density(), 0, 1);
  checks->Within<double>("spec.dropping.warmupFraction", dropping.warmup_fraction(), 0, 1);
  checks->Within<double>("spec.dropping.importanceShare", dropping.importance_share(), 0, 1);
  checks->AtLeast<int64_t>("spec.dropping.refresh", dropping.refresh(), 1);
  CheckDroppingRule(spec, checks);
  if (dropping.has_recompute()) {
    checks->AtLeast<int64_t>("spec.dropping.recompute", dropping.recompute(), kLeastRecompute);
  }
  CheckLimits(dropping.layer_limits(), "spec.dropping.layerLimits", "a parameter", checks);
  CheckLimits(dropping.worker_limits(), "spec.dropping.workerLimits", "a rank", checks);
  checks->Within<double>("spec.dropping.drift", dropping.drift(), 0, 1);
  if (spec.sharding() == v1::SHARDING_FSDP && dropping.worker_limits_size() > 0) {
    checks->Add("spec.dropping.workerLimits", absl::StrCat(dropping.worker_limits_size(), " entries"),
                "is not available with spec.sharding fsdp, whose sums all holders scatter together",
                "remove it, or use sharding none");
  }
}

}  // namespace tessera::spec

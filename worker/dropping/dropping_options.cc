#include "worker/dropping/dropping_options.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/dropping/rotation.h"

namespace tessera::worker {

absl::Status CheckDropping(const DroppingOptions& options, const UnitStore& store) {
  const RuleNeeds needs = options.rule->needs();
  const std::string rule(options.rule->name());
  if (options.picks_alone()) {
    const char* with = store.options().sharded          ? "spec.sharding fsdp"
                       : !options.worker_shares.empty() ? "spec.dropping.workerLimits"
                       : options.device != nullptr      ? "spec.resources.gpus"
                                                        : nullptr;
    if (with != nullptr) {
      return absl::UnimplementedError(absl::StrCat(
          "spec.dropping.rule: '", rule, "' lets every holder pick for itself, which is not available with ",
          with, "; use cyclic_top_k"));
    }
  }
  if (needs.residual && options.residual == ResidualKeep::kNone) {
    return absl::InvalidArgumentError(absl::StrCat("spec.dropping.residual: none, but rule '", rule,
                                                   "' picks by the residual; use bf16 or fp32"));
  }
  const auto& moments = store.options().moments;
  const auto has = [&](const char* name) {
    return std::find(moments.begin(), moments.end(), name) != moments.end();
  };
  if (options.importance_share > 0 &&
      ((needs.second_moment && !has("exp_avg_sq")) || (needs.first_moment && !has("exp_avg")))) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.dropping.rule: '", rule,
                     "' needs the moments of spec.optimizer.name adamw; use rotation or cyclic_top_k"));
  }
  if (store.options().sharded && !options.worker_shares.empty()) {
    return absl::UnimplementedError(
        "spec.dropping.workerLimits: budgets that differ between workers are not available with "
        "spec.sharding fsdp; use none");
  }
  if (!options.worker_shares.empty() &&
      (static_cast<int>(options.worker_shares.size()) != store.plan().workers() ||
       !std::all_of(options.worker_shares.begin(), options.worker_shares.end(),
                    [](double share) { return share > 0 && share <= 1; }))) {
    return absl::InvalidArgumentError(
        "the plan's shares of the workers are not one above 0 and up to 1 each");
  }
  const auto& parameters = store.model().shape().parameters;
  if (options.kept.size() != parameters.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has budgets for ", options.kept.size(), " of ",
                                                   parameters.size(), " parameters"));
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (options.kept[p] < 1 || options.kept[p] > parameters[p].elements()) {
      return absl::InvalidArgumentError(absl::StrCat("the plan's budget of ", parameters[p].name, " is ",
                                                     options.kept[p], " of ", parameters[p].elements(),
                                                     " elements"));
    }
    if (parameters[p].elements() > Rotation::kMostElements) {
      return absl::UnimplementedError(absl::StrCat(parameters[p].name, " has ", parameters[p].elements(),
                                                   " elements; dropping serves tensors of up to ",
                                                   Rotation::kMostElements));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker

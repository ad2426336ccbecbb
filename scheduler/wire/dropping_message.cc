// Gradient dropping in a plan: rule, residual, budgets, and what they save.
#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/dropping_rules.h"
#include "scheduler/plan/dropping_cost.h"
#include "scheduler/plan/layer_budgets.h"
#include "scheduler/wire/plan_wire.h"

namespace tessera::wire {
namespace {

struct Worst {  // over the workers, bytes
  int64_t peak = 0;
  int64_t traffic = 0;
  int64_t gradients = 0;  // residual included
};

Worst WorstOf(const v1::Plan& message) {
  Worst worst;
  for (const v1::WorkerPlan& worker : message.workers()) {
    worst.peak = std::max(worst.peak, worker.memory().peak());
    worst.traffic = std::max(worst.traffic, worker.traffic_bytes_per_step());
    worst.gradients = std::max(worst.gradients, worker.memory().gradients() + worker.memory().residual());
  }
  return worst;
}

// Tensors with one dimension are whole; the others share the rest of the budget as their sizes.
absl::StatusOr<std::vector<int64_t>> Budgets(const plan::ModelShape& shape, double density) {
  std::vector<plan::LayerDemand> layers;
  for (const plan::Parameter& parameter : shape.parameters) {
    const bool whole = parameter.dims.size() < 2;
    layers.push_back({.elements = parameter.elements(), .floor = whole ? 1.0 : 0.0});
  }
  auto kept = plan::LayerBudgets(density, layers);
  if (!kept.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("spec.dropping.density: ", kept.status().message()));
  }
  return kept;
}

int BytesOf(v1::ResidualKeep residual) {
  return residual == v1::RESIDUAL_KEEP_FP32 ? 4 : residual == v1::RESIDUAL_KEEP_BF16 ? 2 : 0;
}

plan::Dropping CostsOf(const v1::DroppingPlan& dropping) {
  plan::Dropping costs;
  costs.kept.assign(dropping.kept().begin(), dropping.kept().end());
  costs.residual_bytes_per_element = BytesOf(dropping.residual());
  costs.refresh = dropping.refresh();
  costs.freeze_unsent = dropping.freeze_unsent();
  if (dropping.importance_share() > 0 && dropping.rule() == "cyclic_top_k")
    costs.picks = plan::PickTraffic::kBitmap;
  if (dropping.importance_share() > 0 && dropping.rule() == "sketch_top_k")
    costs.picks = plan::PickTraffic::kSketch;
  return costs;
}

// Memory and traffic of all workers under `dropping`.
void Predict(const plan::ModelShape& shape, const plan::MaskPlan& mask, const plan::StepShape& step,
             const v1::DroppingPlan& dropping, v1::Plan* message) {
  const plan::Dropping costs = CostsOf(dropping);
  for (v1::WorkerPlan& worker : *message->mutable_workers()) {
    const plan::DroppedMemory dropped = plan::PredictDroppedMemory(shape, mask, worker.rank(), step, costs);
    *worker.mutable_memory() = ToMessage(dropped.memory);
    worker.mutable_memory()->set_residual(dropped.residual);
    worker.set_traffic_bytes_per_step(plan::PredictDroppedTraffic(shape, mask, worker.rank(), step, costs));
  }
}

// What the job leaves open: the rule and the residual, tried from the most exact to the smallest.
struct Choice {
  std::string rule;
  v1::ResidualKeep residual;
};

std::vector<Choice> Choices(const v1::DroppingSpec& spec) {
  std::vector<v1::ResidualKeep> residuals{spec.residual()};
  if (spec.residual() == v1::RESIDUAL_KEEP_AUTO || spec.residual() == v1::RESIDUAL_KEEP_UNSPECIFIED) {
    residuals = {v1::RESIDUAL_KEEP_FP32, v1::RESIDUAL_KEEP_BF16, v1::RESIDUAL_KEEP_NONE};
  }
  std::vector<Choice> choices;
  for (const v1::ResidualKeep residual : residuals) {
    const bool none = residual == v1::RESIDUAL_KEEP_NONE;
    const std::string rule = !spec.rule().empty() ? spec.rule() : none ? "rotation" : "cyclic_top_k";
    const spec::DroppingRuleTraits* traits = spec::FindDroppingRule(rule);
    if (none && traits != nullptr && traits->needs_residual) continue;
    choices.push_back({rule, residual});
  }
  return choices;
}

const char* NameOf(v1::ResidualKeep residual) {
  return residual == v1::RESIDUAL_KEEP_FP32 ? "fp32" : residual == v1::RESIDUAL_KEEP_BF16 ? "bf16" : "none";
}

}  // namespace

absl::Status AddDropping(const plan::ModelShape& shape, const plan::MaskPlan& mask,
                         const v1::TrainingJobSpec& spec, const plan::StepShape& step, int64_t limit,
                         v1::Plan* message) {
  const v1::DroppingSpec& asked = spec.dropping();
  if (asked.mode() != v1::DROPPING_MODE_ENFORCE) return absl::OkStatus();
  v1::DroppingPlan dropping;
  dropping.set_mode(v1::DROPPING_MODE_ENFORCE);
  dropping.set_density(asked.density());
  dropping.set_refresh(asked.has_refresh() ? asked.refresh() : 1);
  dropping.set_freeze_unsent(asked.freeze_unsent());
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> kept, Budgets(shape, asked.density()));
  dropping.mutable_kept()->Assign(kept.begin(), kept.end());

  const v1::Plan dense = *message;
  const Worst before = WorstOf(dense);
  for (const Choice& choice : Choices(asked)) {
    const spec::DroppingRuleTraits* traits = spec::FindDroppingRule(choice.rule);
    if (traits == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("spec.dropping.rule: '", choice.rule, "' is not known"));
    }
    dropping.set_rule(choice.rule);
    dropping.set_residual(choice.residual);
    dropping.set_importance_share(asked.has_importance_share() ? asked.importance_share()
                                                               : traits->default_share);
    Predict(shape, mask, step, dropping, message);
    if (limit <= 0 || WorstOf(*message).peak <= limit) break;
  }
  const Worst after = WorstOf(*message);
  const bool warm = asked.warmup_fraction() > 0 && (limit <= 0 || before.peak <= limit);
  if (warm) {
    dropping.set_first_step(
        std::llround(std::ceil(asked.warmup_fraction() * static_cast<double>(message->total_steps()))));
    // Dense gradients are freed before ring and residual are made.
    for (int w = 0; w < message->workers_size(); ++w) {
      v1::MemoryBreakdown& memory = *message->mutable_workers(w)->mutable_memory();
      memory.set_peak(std::max(memory.peak(), dense.workers(w).memory().peak()));
    }
  }
  if (before.traffic > 0) {
    dropping.set_traffic_ratio(static_cast<double>(after.traffic) / static_cast<double>(before.traffic));
  }
  if (before.gradients > 0) {
    dropping.set_gradient_memory_ratio(static_cast<double>(after.gradients) /
                                       static_cast<double>(before.gradients));
  }
  dropping.set_reason(
      absl::StrFormat("rule %s, residual %s: %.3g of the dense bytes are sent, gradients and residual take "
                      "%.3g of the dense memory; %s",
                      dropping.rule(), NameOf(dropping.residual()), dropping.traffic_ratio(),
                      dropping.gradient_memory_ratio(),
                      warm ? absl::StrCat("dense for the first ", dropping.first_step(), " steps")
                      : asked.warmup_fraction() > 0 ? "no dense warm-up, as dense gradients do not fit"
                                                    : "no dense warm-up"));
  *message->mutable_dropping() = std::move(dropping);
  return absl::OkStatus();
}

}  // namespace tessera::wire

// Gradient dropping in a plan: rule, residual, budgets, and what they save.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/dropping_rules.h"
#include "scheduler/plan/dropping_cost.h"
#include "scheduler/plan/dropping_decision.h"
#include "scheduler/plan/layer_budgets.h"
#include "scheduler/wire/plan_wire.h"
#include "scheduler/wire/resampling_message.h"
#include "scheduler/wire/worker_shares.h"

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

constexpr int64_t kResidualSteps =
    2000;  // 200 lose by a residual (docs/results/dropping.md); assumed between
constexpr double kFloorOfDensity = 0.25;  // the least a measured layer keeps: this part of the density
constexpr double kSpikeFactor = 3;        // gradient norm against its median; a layer above it goes first
constexpr double kSpikePriority = 2;      // its importance is taken as so many times as large

absl::Status NoSuchParameter(const std::string& pattern, const std::string& first, const std::string& last) {
  return absl::InvalidArgumentError(
      absl::StrCat("spec.dropping.layerLimits: no parameter of the model is named '", pattern,
                   "'; it has for example '", first, "' and '", last, "', and * stands for any characters"));
}

// Narrows the bounds of the layers that the limits name; a later limit counts after an earlier one.
absl::Status Limit(const plan::ModelShape& shape, const v1::DroppingSpec& spec,
                   std::vector<plan::LayerDemand>* layers) {
  for (const v1::DensityLimit& limit : spec.layer_limits()) {
    bool found = false;
    for (size_t p = 0; p < layers->size(); ++p) {
      if (!Matches(limit.pattern(), shape.parameters[p].name)) continue;
      found = true;
      plan::LayerDemand& layer = (*layers)[p];
      if (limit.has_min()) layer.floor = limit.min();
      if (limit.has_max()) layer.ceiling = limit.max();
      if (!limit.has_min()) layer.floor = std::min(layer.floor, layer.ceiling);
      if (!limit.has_max()) layer.ceiling = std::max(layer.floor, layer.ceiling);
    }
    if (found) continue;
    return NoSuchParameter(limit.pattern(), shape.parameters.front().name, shape.parameters.back().name);
  }
  return absl::OkStatus();
}

// Tensors with one dimension are whole; the others share the rest of the budget as their measures, or as
// their sizes where there are none.
absl::StatusOr<std::vector<int64_t>> Budgets(const plan::ModelShape& shape, const v1::DroppingSpec& spec,
                                             absl::Span<const LayerMeasure> measures, double density) {
  std::vector<plan::LayerDemand> layers;
  for (size_t p = 0; p < shape.parameters.size(); ++p) {
    const plan::Parameter& parameter = shape.parameters[p];
    const bool whole = parameter.dims.size() < 2;
    plan::LayerDemand layer{.elements = parameter.elements(), .floor = whole ? 1.0 : 0.0};
    if (!measures.empty()) {
      layer.importance = measures[p].root_second_moment;
      if (measures[p].spike > kSpikeFactor) layer.importance *= kSpikePriority;
      if (!whole) layer.floor = kFloorOfDensity * density;
    }
    layers.push_back(layer);
  }
  TESSERA_RETURN_IF_ERROR(Limit(shape, spec, &layers));
  auto kept = plan::LayerBudgets(density, layers);
  if (!kept.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("spec.dropping.density: ", kept.status().message()));
  }
  return kept;
}

int BytesOf(v1::ResidualKeep residual) {
  return residual == v1::RESIDUAL_KEEP_FP32 ? 4 : residual == v1::RESIDUAL_KEEP_BF16 ? 2 : 0;
}

plan::Dropping CostsOf(const v1::DroppingPlan& dropping, bool sharded) {
  plan::Dropping costs;
  costs.kept.assign(dropping.kept().begin(), dropping.kept().end());
  costs.residual_bytes_per_element = BytesOf(dropping.residual());
  costs.refresh = dropping.refresh();
  costs.freeze_unsent = dropping.freeze_unsent();
  if (dropping.importance_share() > 0 && dropping.rule() == "cyclic_top_k")
    costs.picks = plan::PickTraffic::kBitmap;
  if (dropping.importance_share() > 0 && dropping.rule() == "sketch_top_k")
    costs.picks = plan::PickTraffic::kSketch;
  const spec::DroppingRuleTraits* rule = spec::FindDroppingRule(dropping.rule());
  if (dropping.importance_share() > 0 && rule != nullptr && rule->picks_alone)
    costs.picks = plan::PickTraffic::kPairs;
  if (dropping.importance_share() > 0 && sharded && rule != nullptr && rule->needs_moments)
    costs.picks = plan::PickTraffic::kMoments;
  costs.worker_shares.assign(dropping.worker_shares().begin(), dropping.worker_shares().end());
  return costs;
}

// Memory and traffic of all workers under `dropping`, of the masks under which each is largest.
void Predict(const plan::ModelShape& shape, absl::Span<const plan::MaskPlan> masks,
             const plan::StepShape& step, const v1::DroppingPlan& dropping, v1::Plan* message) {
  const plan::Dropping costs = CostsOf(dropping, step.sharded);
  for (v1::WorkerPlan& worker : *message->mutable_workers()) {
    int64_t traffic = 0;
    for (const plan::MaskPlan& mask : masks) {
      const plan::DroppedMemory dropped = plan::PredictDroppedMemory(shape, mask, worker.rank(), step, costs);
      traffic = std::max(traffic, plan::PredictDroppedTraffic(shape, mask, worker.rank(), step, costs));
      if (&mask != &masks[0] && dropped.memory.peak <= worker.memory().peak()) continue;
      *worker.mutable_memory() = ToMessage(dropped.memory);
      worker.mutable_memory()->set_residual(dropped.residual);
    }
    worker.set_traffic_bytes_per_step(traffic);
  }
}

// After what step the workers measure their layers: the last dense one, or where a warm-up would have ended.
void SetStatistics(const v1::DroppingSpec& asked, int64_t total_steps, v1::DroppingPlan* dropping) {
  const int64_t warm = std::llround(std::ceil(asked.warmup_fraction() * static_cast<double>(total_steps)));
  if (asked.warmup_fraction() > 0) dropping->set_statistics_step(std::max<int64_t>(1, warm));
  dropping->set_recompute(asked.recompute());
  if (asked.recompute() > 0 && dropping->statistics_step() == 0) {
    dropping->set_statistics_step(asked.recompute());
  }
}

// Memory and traffic under the budgets of `plan`, which may no longer fit: ResourceExhausted.
absl::Status Repredict(const plan::ModelShape& shape, const v1::TrainingJobSpec& spec, v1::Plan* plan) {
  TESSERA_ASSIGN_OR_RETURN(const plan::MaskPlan mask, RecomputeMaskPlan(shape, *plan));
  v1::Plan predicted = *plan;
  plan::StepShape step = StepShapeFrom(spec, shape);
  step.checkpointed |= plan->activation_checkpointing() == v1::ACTIVATION_CHECKPOINTING_ALWAYS;
  const std::vector<plan::MaskPlan> masks = MasksOf(shape, mask, *plan);
  Predict(shape, masks, step, plan->dropping(), &predicted);
  AddMoves(shape, masks, step, &predicted);
  v1::DroppingPlan& dropping = *plan->mutable_dropping();
  if (dropping.mode() != v1::DROPPING_MODE_ENFORCE) return absl::OkStatus();
  const double dense = dropping.traffic_ratio() > 0
                           ? static_cast<double>(WorstOf(*plan).traffic) / dropping.traffic_ratio()
                           : 0;
  const int64_t limit = plan->memory_limit_bytes();
  if (const Worst worst = WorstOf(predicted); limit > 0 && worst.peak > limit) {
    return absl::ResourceExhaustedError(absl::StrCat("with these budgets a worker would need ", worst.peak,
                                                     " bytes at its peak and has ", limit));
  }
  for (int w = 0; w < plan->workers_size(); ++w) {
    // A dense warm-up has been at its peak, and comes again if the run begins again.
    v1::MemoryBreakdown& memory = *predicted.mutable_workers(w)->mutable_memory();
    if (dropping.first_step() > 0) memory.set_peak(std::max(memory.peak(), plan->workers(w).memory().peak()));
  }
  *plan->mutable_workers() = predicted.workers();
  if (dense > 0) dropping.set_traffic_ratio(static_cast<double>(WorstOf(*plan).traffic) / dense);
  return absl::OkStatus();
}

// What the job leaves open: the rule and the residual, tried from the most exact to the smallest.
struct Choice {
  std::string rule;
  v1::ResidualKeep residual;
};

std::vector<Choice> Choices(const v1::DroppingSpec& spec, int64_t total_steps) {
  std::vector<v1::ResidualKeep> residuals{spec.residual()};
  if (spec.residual() == v1::RESIDUAL_KEEP_AUTO || spec.residual() == v1::RESIDUAL_KEEP_UNSPECIFIED) {
    residuals = {v1::RESIDUAL_KEEP_NONE};
    const spec::DroppingRuleTraits* rule = spec::FindDroppingRule(spec.rule());
    if (total_steps >= kResidualSteps || (rule != nullptr && rule->needs_residual)) {
      residuals = {v1::RESIDUAL_KEEP_FP32, v1::RESIDUAL_KEEP_BF16, v1::RESIDUAL_KEEP_NONE};
    }
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

// Local picks with their indices go to every holder, which from a few workers on is more than all-reduced
// gradients: 2(k-1)/k * 4 bytes an element and (k-1) * 8 * density.
absl::Status CheckPairs(const v1::DroppingPlan& dropping, int64_t dense, int64_t pairs) {
  if (dense <= 0 || pairs < dense) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "spec.dropping.rule: %s sends %d bytes a step, as every holder's picks go to all others with their "
      "indices, and dense gradients %d; use cyclic_top_k, or a spec.dropping.density below %.3g",
      dropping.rule(), pairs, dense,
      dropping.density() * static_cast<double>(dense) / static_cast<double>(pairs)));
}

const char* NameOf(v1::ResidualKeep residual) {
  return residual == v1::RESIDUAL_KEEP_FP32 ? "fp32" : residual == v1::RESIDUAL_KEEP_BF16 ? "bf16" : "none";
}

}  // namespace

absl::Status AddDropping(const plan::ModelShape& shape, absl::Span<const plan::MaskPlan> masks,
                         const v1::TrainingJobSpec& spec, const plan::StepShape& step, int64_t limit,
                         v1::Plan* message) {
  const v1::DroppingSpec& asked = spec.dropping();
  v1::DroppingPlan dropping;
  dropping.set_mode(asked.mode() == v1::DROPPING_MODE_SHADOW ? v1::DROPPING_MODE_SHADOW
                                                             : v1::DROPPING_MODE_ENFORCE);
  dropping.set_density(asked.density());
  dropping.set_refresh(asked.has_refresh() ? asked.refresh() : 1);
  dropping.set_freeze_unsent(asked.freeze_unsent());
  dropping.set_drift(asked.drift());
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> kept, Budgets(shape, asked, {}, asked.density()));
  dropping.mutable_kept()->Assign(kept.begin(), kept.end());
  for (const plan::Parameter& parameter : shape.parameters) {
    dropping.add_parameters(parameter.name);
    dropping.add_elements(parameter.elements());
  }

  const v1::Plan dense = *message;
  const Worst before = WorstOf(dense);
  for (const Choice& choice : Choices(asked, message->total_steps())) {
    const spec::DroppingRuleTraits* traits = spec::FindDroppingRule(choice.rule);
    if (traits == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("spec.dropping.rule: '", choice.rule, "' is not known"));
    }
    dropping.set_rule(choice.rule);
    dropping.set_residual(choice.residual);
    dropping.set_importance_share(asked.has_importance_share() ? asked.importance_share()
                                                               : traits->default_share);
    Predict(shape, masks, step, dropping, message);
    if (limit <= 0 || WorstOf(*message).peak <= limit) break;
  }
  const plan::Dropping costs = CostsOf(dropping, step.sharded);
  const bool alone = costs.picks == plan::PickTraffic::kPairs;
  if (alone) TESSERA_RETURN_IF_ERROR(CheckPairs(dropping, before.traffic, WorstOf(*message).traffic));
  WorkerShares workers;  // who picks for itself contributes what it picks
  if (!alone) {
    TESSERA_ASSIGN_OR_RETURN(workers, DivideWorkers(shape, masks[0], spec, step, dense, costs, limit));
  }
  dropping.set_sync_seconds(workers.seconds);
  if (!workers.shares.empty()) {
    dropping.mutable_worker_shares()->Assign(workers.shares.begin(), workers.shares.end());
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> most, Budgets(shape, asked, {}, workers.density));
    dropping.mutable_kept()->Assign(most.begin(), most.end());
    Predict(shape, masks, step, dropping, message);
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
  if (!workers.reason.empty()) dropping.set_reason(absl::StrCat(dropping.reason(), "; ", workers.reason));
  SetStatistics(asked, message->total_steps(), &dropping);
  if (asked.mode() == v1::DROPPING_MODE_AUTO) {
    const plan::DroppingDecision decision =
        plan::DecideDropping({.compute_seconds = message->predicted_step_seconds(),
                              .bytes_per_second = SlowestLink(spec, *message),
                              .dense_traffic = before.traffic,
                              .dropped_traffic = after.traffic,
                              .dense_memory = before.peak,
                              .dropped_memory = after.peak,
                              .memory_limit = limit});
    dropping.set_reason(absl::StrCat(decision.reason, "; ", dropping.reason()));
    if (!decision.pays) {
      v1::DroppingPlan off;
      off.set_mode(v1::DROPPING_MODE_OFF);
      off.set_density(dropping.density());
      off.set_reason(dropping.reason());
      dropping = off;
    }
  }
  // What is not applied changes neither memory nor traffic.
  if (dropping.mode() != v1::DROPPING_MODE_ENFORCE) *message = dense;
  *message->mutable_dropping() = std::move(dropping);
  return absl::OkStatus();
}

absl::StatusOr<v1::Plan> Rebudget(const plan::ModelShape& shape, const v1::TrainingJobSpec& spec,
                                  const v1::Plan& plan, absl::Span<const LayerMeasure> measures) {
  // With unequal workers the job's density is the mean of theirs.
  double density = spec.dropping().density();
  const auto& shares = plan.dropping().worker_shares();
  if (!shares.empty()) density *= shares.size() / std::accumulate(shares.begin(), shares.end(), 0.0);
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> kept,
                           Budgets(shape, spec.dropping(), measures, std::min(1.0, density)));
  v1::Plan next = plan;
  next.mutable_dropping()->mutable_kept()->Assign(kept.begin(), kept.end());
  next.mutable_dropping()->set_budgets_of(0);
  TESSERA_RETURN_IF_ERROR(Repredict(shape, spec, &next));
  return next;
}

absl::StatusOr<v1::Plan> WithBudgetsOf(const plan::ModelShape& shape, const v1::TrainingJobSpec& spec,
                                       const v1::Plan& plan, const v1::Plan& earlier) {
  if (earlier.dropping().kept_size() != static_cast<int>(shape.parameters.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("plan ", earlier.generation(), " has no gradient budgets to go back to"));
  }
  v1::Plan next = plan;
  *next.mutable_dropping()->mutable_kept() = earlier.dropping().kept();
  next.mutable_dropping()->set_budgets_of(earlier.generation());
  TESSERA_RETURN_IF_ERROR(Repredict(shape, spec, &next));
  return next;
}

absl::Status CheckLayerLimits(const v1::DroppingPlan& dropping, absl::Span<const v1::DensityLimit> limits) {
  const auto& names = dropping.parameters();
  for (const v1::DensityLimit& limit : limits) {
    const auto fits = [&](const std::string& name) { return Matches(limit.pattern(), name); };
    if (!names.empty() && std::none_of(names.begin(), names.end(), fits))
      return NoSuchParameter(limit.pattern(), *names.begin(), *names.rbegin());
  }
  return absl::OkStatus();
}

std::string DescribeBudgetChange(const plan::ModelShape& shape, const v1::Plan& before,
                                 const v1::Plan& after) {
  int most = -1, least = -1;
  double gain = 0, loss = 0;
  const auto share = [&](const v1::Plan& of, int p) {
    return static_cast<double>(of.dropping().kept(p)) / static_cast<double>(shape.parameters[p].elements());
  };
  for (int p = 0; p < std::min(before.dropping().kept_size(), after.dropping().kept_size()); ++p) {
    const double change = share(after, p) - share(before, p);
    if (change > gain) gain = change, most = p;
    if (change < loss) loss = change, least = p;
  }
  if (most < 0 && least < 0) return "no budget changes";
  const auto say = [&](int p) {
    return absl::StrFormat("%s from %.3f to %.3f", shape.parameters[p].name, share(before, p),
                           share(after, p));
  };
  std::vector<std::string> parts;
  if (most >= 0) parts.push_back(absl::StrCat("most gained: ", say(most)));
  if (least >= 0) parts.push_back(absl::StrCat("most lost: ", say(least)));
  return absl::StrJoin(parts, "; ");
}

}  // namespace tessera::wire

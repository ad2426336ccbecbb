// The Plan message, made by the scheduler and checked by every worker.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "scheduler/plan/flop_matching.h"
#include "scheduler/plan/mask_graph.h"
#include "scheduler/plan/placement_question.h"
#include "scheduler/wire/plan_wire.h"
#include "scheduler/wire/resampling_message.h"

namespace tessera::wire {
namespace {

void AddUnits(const plan::MaskPlan& mask, v1::Plan& message) {
  for (size_t u = 0; u < mask.units().size(); ++u) {
    const plan::Unit& unit = mask.units()[u];
    v1::PlanUnit& out = *message.add_units();
    out.set_name(unit.name);
    out.set_block(unit.block);
    out.set_axis(static_cast<int32_t>(unit.axis));
    out.set_chunk(static_cast<int32_t>(unit.chunk));
    out.set_always_on(unit.always_on);
    out.set_elements(unit.elements);
    out.set_flops_per_token(unit.flops_per_token);
    for (int rank : mask.Holders(static_cast<int>(u))) out.add_holders(rank);
    message.set_total_elements(message.total_elements() + unit.elements);
    if (!unit.always_on) message.set_maskable_elements(message.maskable_elements() + unit.elements);
  }
}

void AddWorkers(const plan::ModelShape& shape, const plan::MaskRequest& request, const plan::MaskPlan& mask,
                const plan::StepShape& step, const PlanContext& context, v1::Plan& message) {
  const double cores = context.cores_per_worker;
  double slowest = 0;
  for (int rank = 0; rank < mask.workers(); ++rank) {
    v1::WorkerPlan& out = *message.add_workers();
    out.set_rank(rank);
    out.set_coverage(mask.Coverage(rank));
    out.set_parameter_share(mask.ParameterShare(rank));
    out.set_elements(mask.Elements(rank));
    *out.mutable_memory() = ToMessage(plan::PredictMemory(shape, mask, rank, step));
    out.set_process_bytes(plan::PredictProcess(shape, mask, rank, step, out.memory().peak()));
    out.set_traffic_bytes_per_step(plan::PredictTraffic(mask, rank, step));
    out.set_flops_per_token(mask.FlopsPerToken(rank));
    out.set_batch(step.BatchOf(rank));
    const plan::WorkerCapacity capacity =
        request.capacities.empty() ? plan::WorkerCapacity{.bytes_per_second = context.bytes_per_second}
                                   : request.capacities[rank];
    if (capacity.bytes_per_second > 0) {
      out.set_communication_seconds(static_cast<double>(out.traffic_bytes_per_step()) /
                                    capacity.bytes_per_second);
    }
    if (cores <= 0) continue;
    out.set_step_seconds(plan::PredictComputeSeconds(shape, mask, rank, step) / cores /
                         capacity.relative_speed);
    if (out.step_seconds() > 0) slowest = std::max(slowest, out.step_seconds() + out.communication_seconds());
  }
  message.set_predicted_step_seconds(slowest);
}

std::vector<std::string> Remedies(const plan::NearestChanges& changes) {
  std::vector<std::string> remedies;
  if (changes.coverage > 0)
    remedies.push_back(absl::StrFormat("spec.subnetwork.coverage: %.4g", changes.coverage));
  if (changes.batch > 0) remedies.push_back(absl::StrCat("spec.workers.batch: ", changes.batch));
  if (changes.sequence_length > 0) {
    remedies.push_back(absl::StrCat("spec.data.sequenceLength: ", changes.sequence_length));
  }
  if (changes.checkpointed) remedies.push_back("spec.activationCheckpointing: always");
  if (changes.sharded) remedies.push_back("spec.sharding: fsdp");
  if (changes.workers > 0) {
    remedies.push_back(
        absl::StrCat("spec.workers.count: ", changes.workers, " with as many holders of each unit as now"));
  }
  return remedies;
}

struct Division {
  plan::MaskRequest request;
  plan::StepShape step;
  plan::MaskPlan mask;
};

// The batch divided among unlike workers; none when that leaves them equal, or does not fit.
std::optional<Division> Divide(const plan::ModelShape& shape, const plan::MaskRequest& request,
                               const plan::StepShape& step, const plan::MemoryLimits& limits) {
  Division division{request, step, {}};
  division.step.batches = request.samples;
  const absl::StatusOr<plan::MaskRequest> alike = plan::WithinLimits(shape, request, division.step, limits);
  if (!alike.ok()) return std::nullopt;
  const auto samples = plan::BalanceSamples(shape, *alike, step.batch);
  if (!samples.ok() || *samples == request.samples) return std::nullopt;
  division.request = *alike;
  division.request.samples = *samples;
  division.step.batches = *samples;
  absl::StatusOr<plan::MaskPlan> mask = plan::MakeMaskPlan(shape, division.request);
  if (!mask.ok()) return std::nullopt;
  for (int w = 0; w < request.workers; ++w) {
    const int64_t limit = limits[static_cast<size_t>(w)];
    if (limit > 0 && plan::PredictMemory(shape, *mask, w, division.step).peak > limit) return std::nullopt;
  }
  division.mask = *std::move(mask);
  return division;
}

// By worker, of a job with `workers` of them.
plan::MemoryLimits LimitsOf(const PlanContext& context, int workers,
                            absl::Span<const plan::WorkerCapacity> capacities) {
  plan::MemoryLimits limits(static_cast<size_t>(std::max(0, workers)), context.memory_limit_bytes);
  for (size_t w = 0; w < std::min(limits.size(), capacities.size()); ++w)
    limits[w] = capacities[w].usable_bytes;
  return limits;
}

// 0: of none.
int64_t LeastKnown(const plan::MemoryLimits& limits) {
  int64_t least = 0;
  for (int64_t limit : limits) {
    if (limit > 0 && (least == 0 || limit < least)) least = limit;
  }
  return least;
}

void SetFit(const plan::ModelShape& shape, const plan::MaskRequest& request, const plan::StepShape& step,
            const plan::MemoryLimits& limits, v1::Plan& message) {
  message.set_memory_limit_bytes(LeastKnown(limits));
  const v1::WorkerPlan* worst = nullptr;
  const auto missing = [](const v1::WorkerPlan& w) { return w.memory().peak() - w.memory_limit_bytes(); };
  bool known = !shape.activations.kinds.empty();  // else the figure is a lower bound
  for (v1::WorkerPlan& worker : *message.mutable_workers()) {
    worker.set_memory_limit_bytes(limits[static_cast<size_t>(worker.rank())]);
    known &= worker.memory_limit_bytes() > 0;
    if (worker.memory_limit_bytes() == 0 || missing(worker) <= 0) continue;
    if (worst == nullptr || missing(worker) > missing(*worst)) worst = &worker;
  }
  if (worst == nullptr) {
    message.set_fit(known ? "fits" : "unknown");
    return;
  }
  message.set_fit(absl::StrCat("worker ", worst->rank(), " needs ", worst->memory().peak(),
                               " bytes at its peak, but has ", worst->memory_limit_bytes(), ": ",
                               missing(*worst), " bytes are missing"));
  const plan::NearestChanges changes = plan::FindNearestChanges(shape, request, step, limits);
  message.set_nearest_coverage(changes.coverage);
  for (std::string& remedy : Remedies(changes)) message.add_remedies(std::move(remedy));
}

// What one core that the shape was measured on computes; 0: not measured.
double FlopsPerSecond(const plan::ModelShape& shape) {
  const plan::ActivationProfile& profile = shape.activations;
  double seconds = profile.head_seconds_per_token;
  for (const plan::Block& block : shape.blocks) {
    if (block.kind < static_cast<int>(profile.kinds.size())) {
      seconds += profile.kinds[static_cast<size_t>(block.kind)].seconds_per_token;
    }
  }
  return seconds > 0 ? 3 * shape.flops_per_token() / seconds : 0;
}

// What placing unlike workers weighs besides memory.
void Weigh(const plan::ModelShape& shape, const PlanContext& context, const plan::StepShape& step,
           plan::MaskRequest& request) {
  request.flops_per_second = context.flops_per_second > 0 ? context.flops_per_second
                                                          : FlopsPerSecond(shape) * context.cores_per_worker;
  request.samples.assign(static_cast<size_t>(request.workers), step.batch);
  request.tokens_per_sample = static_cast<double>(step.sequence_length * step.accumulation);
}

absl::Status Differs(absl::string_view what, uint64_t planned, uint64_t here) {
  return absl::FailedPreconditionError(
      absl::StrFormat("%s differs: the plan was made for fingerprint %016x, this worker has %016x; scheduler "
                      "and worker must be of the "
                      "same version and model",
                      what, planned, here));
}

int64_t StepsOf(const v1::TrainingJobSpec& spec, const plan::ModelShape& shape,
                const plan::MaskRequest& request, const plan::StepShape& step, int64_t otherwise) {
  if (spec.schedule().has_steps()) return spec.schedule().steps();
  if (spec.schedule().has_epochs() && shape.training_samples > 0) {
    const double samples = spec.schedule().epochs() * static_cast<double>(shape.training_samples);
    return std::max<int64_t>(
        1, std::llround(
               std::ceil(samples / static_cast<double>(step.batch * step.accumulation * request.workers))));
  }
  if (!spec.schedule().has_tokens()) return otherwise;
  const int64_t per_step =
      std::max<int64_t>(1, step.batch * step.sequence_length * step.accumulation * request.workers);
  return (spec.schedule().tokens() + per_step - 1) / per_step;
}

}  // namespace

v1::MemoryBreakdown ToMessage(const plan::MemoryPrediction& memory) {
  v1::MemoryBreakdown message;
  message.set_parameters(memory.parameters);
  message.set_gradients(memory.gradients);
  message.set_optimizer(memory.optimizer);
  message.set_buffers(memory.buffers);
  message.set_activations(memory.activations);
  message.set_transient(memory.transient);
  message.set_peak(memory.peak);
  for (const plan::PhasePeak& phase : memory.phases) {
    v1::MemoryPhase& out = *message.add_phases();
    out.set_name(phase.name);
    out.set_peak_bytes(phase.bytes);
  }
  return message;
}

v1::Plan MakePlanMessage(const plan::ModelShape& shape, const plan::MaskRequest& request,
                         const plan::MaskPlan& mask, const plan::StepShape& step, const PlanContext& context,
                         absl::Span<const plan::WorkerCapacity> limits) {
  v1::Plan message;
  message.set_generation(context.generation);
  message.set_epoch(context.epoch);
  message.set_reason(context.reason);
  *message.mutable_inputs() = ToInputs(request, context.masking, shape.Fingerprint());
  message.mutable_inputs()->set_resample_every(context.resample_every);
  message.set_mask_fingerprint(mask.Fingerprint());
  AddUnits(mask, message);
  AddWorkers(shape, request, mask, step, context, message);
  const plan::MaskGraph graph = plan::AnalyseMaskGraph(mask);
  message.set_spectral_gap(graph.gap);
  message.set_variance_factor(graph.variance_factor);
  message.set_holder_sets(static_cast<int32_t>(mask.HolderSets().size()));
  for (const plan::Alternative& alternative : plan::Alternatives(shape, request, step)) {
    v1::PlanAlternative& out = *message.add_alternatives();
    out.set_name(alternative.name);
    out.set_memory_bytes(alternative.memory);
    out.set_traffic_bytes_per_step(alternative.traffic);
  }
  message.set_total_steps(context.flop_matched
                              ? plan::FlopMatchedSteps(mask, context.steps, step.backward_masking)
                              : context.steps);
  SetFit(shape, request, step, LimitsOf(context, request.workers, limits), message);
  return message;
}

namespace {

// With activation checkpointing always or never.
absl::StatusOr<v1::Plan> PlanDecided(const plan::ModelShape& shape, const v1::TrainingJobSpec& spec,
                                     PlanContext context, absl::Span<const plan::WorkerCapacity> capacities) {
  TESSERA_ASSIGN_OR_RETURN(plan::MaskRequest request, MaskRequestFrom(spec, capacities));
  plan::StepShape step = StepShapeFrom(spec, shape);
  if (shape.elements() < 1) return absl::InvalidArgumentError("spec.model: the model has no parameters");
  if (context.memory_limit_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the memory limit of a worker, ", context.memory_limit_bytes, " bytes, must be 0 (unknown) or more"));
  }
  if (const double core = FlopsPerSecond(shape); core > 0 && context.flops_per_second > 0) {
    context.cores_per_worker = context.flops_per_second / core;
  }
  plan::MemoryLimits usable = LimitsOf(context, request.workers, capacities);
  if (spec.subnetwork().coverage_auto() && LeastKnown(usable) > 0) {
    for (int64_t& limit : usable)
      limit = static_cast<int64_t>(static_cast<double>(limit) * (1 - kAutoCoverageMargin));
    request.coverage = plan::NearestCoverage(shape, request, step, usable);
    if (request.coverage == 0) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "spec.subnetwork.coverageAuto: no coverage lets ", request.workers, " workers stay within ",
          capacities.empty() ? absl::StrCat(context.memory_limit_bytes, " bytes each")
                             : std::string("their memory limits"),
          "; add workers, memory, or lower spec.workers.batch"));
    }
  } else if (spec.subnetwork().coverage_auto()) {
    request.coverage = 1;
  }
  if (!capacities.empty()) Weigh(shape, context, step, request);
  absl::StatusOr<plan::MaskRequest> within = plan::WithinLimits(shape, request, step, usable);
  absl::StatusOr<plan::MaskPlan> mask = within.ok() ? plan::MakeMaskPlan(shape, *within) : within.status();
  if (mask.ok() && spec.workers().balance_batch() && !capacities.empty() &&
      request.scheme == plan::Scheme::kPlaced) {
    if (std::optional<Division> division = Divide(shape, request, step, usable)) {
      within = std::move(division->request);
      mask = std::move(division->mask);
      step = std::move(division->step);
    }
  }
  if (!mask.ok()) {
    std::string message = absl::StrCat("spec.subnetwork: ", mask.status().message());
    if (absl::IsResourceExhausted(mask.status())) {
      const auto remedies = Remedies(plan::FindNearestChanges(shape, request, step, usable));
      absl::StrAppend(&message,
                      remedies.empty() ? "; no single change makes it fit" : "; any of these makes it fit: ",
                      absl::StrJoin(remedies, "; "));
    }
    return absl::Status(mask.status().code(), message);
  }
  TESSERA_RETURN_IF_ERROR(CheckResampling(spec, shape, *mask));
  context.resample_every = spec.subnetwork().resample_every();
  context.masking = spec.subnetwork().masking();
  context.flop_matched = spec.schedule().flop_matched();
  context.steps = StepsOf(spec, shape, request, step, context.steps);
  v1::Plan message = MakePlanMessage(shape, *within, *mask, step, context, capacities);
  const std::vector<plan::MaskPlan> masks = MasksOf(shape, *mask, message);
  CoverAllMasks(shape, masks, step, &message);
  const bool drops = spec.dropping().mode() != v1::DROPPING_MODE_UNSPECIFIED &&
                     spec.dropping().mode() != v1::DROPPING_MODE_OFF;
  const plan::MemoryLimits limits = LimitsOf(context, request.workers, capacities);
  if (drops) TESSERA_RETURN_IF_ERROR(AddDropping(shape, masks, spec, step, LeastKnown(limits), &message));
  AddMoves(shape, masks, step, &message);
  if (drops || masks.size() > 1) {
    message.clear_nearest_coverage();
    message.clear_remedies();
    SetFit(shape, request, step, limits, message);
  }
  message.set_activation_checkpointing(step.checkpointed ? v1::ACTIVATION_CHECKPOINTING_ALWAYS
                                                         : v1::ACTIVATION_CHECKPOINTING_NEVER);
  return message;
}

bool Fits(const absl::StatusOr<v1::Plan>& plan) {
  return plan.ok() && (plan->fit() == "fits" || plan->fit() == "unknown");
}

// Checkpointing costs a second forward pass: it is taken where nothing fits without it, or where an automatic
// coverage is larger with it.
absl::StatusOr<v1::Plan> ChooseCheckpointing(const plan::ModelShape& shape, v1::TrainingJobSpec spec,
                                             const PlanContext& context,
                                             absl::Span<const plan::WorkerCapacity> capacities) {
  spec.set_activation_checkpointing(v1::ACTIVATION_CHECKPOINTING_NEVER);
  absl::StatusOr<v1::Plan> never = PlanDecided(shape, spec, context, capacities);
  if (Fits(never) && (!spec.subnetwork().coverage_auto() || never->inputs().coverage() >= 1)) {
    never->set_activation_checkpointing_reason("off: the job fits without it");
    return never;
  }
  spec.set_activation_checkpointing(v1::ACTIVATION_CHECKPOINTING_ALWAYS);
  absl::StatusOr<v1::Plan> always = PlanDecided(shape, spec, context, capacities);
  if (!Fits(never)) {
    if (!Fits(always)) return never;  // neither: what is missing, and what would help, as without it
    always->set_activation_checkpointing_reason(
        absl::StrCat("on: without it the job does not fit: ",
                     never.ok() ? never->fit() : std::string(never.status().message())));
    return always;
  }
  if (!Fits(always) || always->inputs().coverage() <= never->inputs().coverage()) {
    never->set_activation_checkpointing_reason("off: coverage would be no larger with it");
    return never;
  }
  always->set_activation_checkpointing_reason(absl::StrFormat("on: coverage is %.4g with it and %.4g without",
                                                              always->inputs().coverage(),
                                                              never->inputs().coverage()));
  return always;
}

}  // namespace

absl::StatusOr<v1::Plan> PlanJob(const plan::ModelShape& shape, const v1::TrainingJobSpec& spec,
                                 const PlanContext& context,
                                 absl::Span<const plan::WorkerCapacity> capacities) {
  if (spec.activation_checkpointing() == v1::ACTIVATION_CHECKPOINTING_AUTO) {
    return ChooseCheckpointing(shape, spec, context, capacities);
  }
  return PlanDecided(shape, spec, context, capacities);
}

absl::StatusOr<plan::MaskPlan> RecomputeMaskPlan(const plan::ModelShape& shape, const v1::Plan& plan) {
  const uint64_t shape_fingerprint = shape.Fingerprint();
  if (shape_fingerprint != plan.inputs().shape_fingerprint()) {
    return Differs("the model's shape", plan.inputs().shape_fingerprint(), shape_fingerprint);
  }
  TESSERA_ASSIGN_OR_RETURN(const plan::MaskRequest request, MaskRequestFrom(plan.inputs()));
  TESSERA_ASSIGN_OR_RETURN(plan::MaskPlan mask, plan::MakeMaskPlan(shape, request));
  const uint64_t fingerprint = mask.Fingerprint();
  if (fingerprint != plan.mask_fingerprint())
    return Differs("the mask plan", plan.mask_fingerprint(), fingerprint);
  return mask;
}

}  // namespace tessera::wire

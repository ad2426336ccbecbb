// The Plan message, made by the scheduler and checked by every worker.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "scheduler/plan/flop_matching.h"
#include "scheduler/plan/mask_graph.h"
#include "scheduler/wire/plan_wire.h"

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

void AddWorkers(const plan::ModelShape& shape, const plan::MaskPlan& mask, const plan::StepShape& step,
                v1::Plan& message) {
  for (int rank = 0; rank < mask.workers(); ++rank) {
    v1::WorkerPlan& out = *message.add_workers();
    out.set_rank(rank);
    out.set_coverage(mask.Coverage(rank));
    out.set_parameter_share(mask.ParameterShare(rank));
    out.set_elements(mask.Elements(rank));
    *out.mutable_memory() = ToMessage(plan::PredictMemory(shape, mask, rank, step));
    out.set_traffic_bytes_per_step(plan::PredictTraffic(mask, rank, step));
    out.set_flops_per_token(mask.FlopsPerToken(rank));
  }
}

std::vector<std::string> Remedies(const plan::NearestChanges& changes) {
  std::vector<std::string> remedies;
  if (changes.coverage > 0)
    remedies.push_back(absl::StrFormat("spec.subnetwork.coverage: %.4g", changes.coverage));
  if (changes.batch > 0) remedies.push_back(absl::StrCat("spec.workers.batch: ", changes.batch));
  if (changes.sequence_length > 0) {
    remedies.push_back(absl::StrCat("spec.data.sequenceLength: ", changes.sequence_length));
  }
  if (changes.workers > 0) {
    remedies.push_back(
        absl::StrCat("spec.workers.count: ", changes.workers, " with as many holders of each unit as now"));
  }
  return remedies;
}

void SetFit(const plan::ModelShape& shape, const plan::MaskRequest& request, const plan::StepShape& step,
            int64_t limit, v1::Plan& message) {
  message.set_memory_limit_bytes(limit);
  if (limit <= 0) {
    message.set_fit("unknown");
    return;
  }
  const auto largest = std::max_element(
      message.workers().begin(), message.workers().end(),
      [](const v1::WorkerPlan& a, const v1::WorkerPlan& b) { return a.memory().peak() < b.memory().peak(); });
  const int64_t peak = largest->memory().peak();
  if (peak > limit) {
    message.set_fit(absl::StrCat("worker ", largest->rank(), " needs ", peak, " bytes at its peak, but has ",
                                 limit, ": ", peak - limit, " bytes are missing"));
    const plan::NearestChanges changes = plan::FindNearestChanges(shape, request, step, limit);
    message.set_nearest_coverage(changes.coverage);
    for (std::string& remedy : Remedies(changes)) message.add_remedies(std::move(remedy));
    return;
  }
  // Without measured activations the figure is a lower bound.
  message.set_fit(shape.activations.kinds.empty() ? "unknown" : "fits");
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

v1::Plan MakePlanMessage(const plan::ModelShape& shape, const plan::MaskRequest& request,
                         const plan::MaskPlan& mask, const plan::StepShape& step,
                         const PlanContext& context) {
  v1::Plan message;
  message.set_generation(context.generation);
  message.set_epoch(context.epoch);
  message.set_reason(context.reason);
  *message.mutable_inputs() = ToInputs(request, context.masking, shape.Fingerprint());
  message.set_mask_fingerprint(mask.Fingerprint());
  AddUnits(mask, message);
  AddWorkers(shape, mask, step, message);
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
  double slowest = 0;
  for (int w = 0; w < mask.workers(); ++w) {
    slowest = std::max(slowest, plan::PredictComputeSeconds(shape, mask, w, step));
  }
  if (context.cores_per_worker > 0) message.set_predicted_step_seconds(slowest / context.cores_per_worker);
  SetFit(shape, request, step, context.memory_limit_bytes, message);
  return message;
}

absl::StatusOr<v1::Plan> PlanJob(const plan::ModelShape& shape, const v1::TrainingJobSpec& spec,
                                 PlanContext context, absl::Span<const plan::WorkerCapacity> capacities) {
  TESSERA_ASSIGN_OR_RETURN(plan::MaskRequest request, MaskRequestFrom(spec, capacities));
  const plan::StepShape step = StepShapeFrom(spec);
  if (shape.elements() < 1) return absl::InvalidArgumentError("spec.model: the model has no parameters");
  if (context.memory_limit_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the memory limit of a worker, ", context.memory_limit_bytes, " bytes, must be 0 (unknown) or more"));
  }
  if (spec.subnetwork().coverage_auto() && context.memory_limit_bytes > 0) {
    const auto usable =
        static_cast<int64_t>(static_cast<double>(context.memory_limit_bytes) * (1 - kAutoCoverageMargin));
    request.coverage = plan::NearestCoverage(shape, request, step, usable);
    if (request.coverage == 0) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "subnetwork.coverage_auto: no coverage lets ", request.workers, " workers stay within ",
          context.memory_limit_bytes, " bytes each; add workers, memory, or lower spec.workers.batch"));
    }
  } else if (spec.subnetwork().coverage_auto()) {
    request.coverage = 1;
  }
  const absl::StatusOr<plan::MaskPlan> mask = plan::MakeMaskPlan(shape, request);
  if (!mask.ok()) {
    return absl::Status(mask.status().code(), absl::StrCat("spec.subnetwork: ", mask.status().message()));
  }
  context.masking = spec.subnetwork().masking();
  context.flop_matched = spec.schedule().flop_matched();
  context.steps = StepsOf(spec, shape, request, step, context.steps);
  return MakePlanMessage(shape, request, *mask, step, context);
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

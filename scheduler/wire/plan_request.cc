// What a job asks of the planner, from its spec or from a plan's inputs.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/wire/plan_wire.h"

namespace tessera::wire {
namespace {

absl::StatusOr<plan::Granularity> GranularityFrom(v1::Granularity granularity) {
  switch (granularity) {
    case v1::GRANULARITY_BLOCK:
      return plan::Granularity::kBlock;
    case v1::GRANULARITY_NEURON:
      return plan::Granularity::kNeuron;
    default:
      return absl::InvalidArgumentError("spec.subnetwork.granularity: not set; must be 'block'");
  }
}

v1::Granularity ToMessage(plan::Granularity granularity) {
  return granularity == plan::Granularity::kNeuron ? v1::GRANULARITY_NEURON : v1::GRANULARITY_BLOCK;
}

absl::StatusOr<plan::Scheme> SchemeFrom(v1::MaskScheme scheme) {
  switch (scheme) {
    case v1::MASK_SCHEME_FULL:
      return plan::Scheme::kFull;
    case v1::MASK_SCHEME_CYCLIC:
      return plan::Scheme::kCyclic;
    case v1::MASK_SCHEME_RANDOM_BALANCED:
      return plan::Scheme::kRandomBalanced;
    case v1::MASK_SCHEME_SIZE_AWARE:
      return plan::Scheme::kSizeAware;
    case v1::MASK_SCHEME_PLACED:
      return plan::Scheme::kPlaced;
    default:
      return absl::InvalidArgumentError(
          "spec.subnetwork.scheme: not set; must be auto, full, cyclic, random_balanced, size_aware or "
          "placed");
  }
}

v1::MaskScheme ToMessage(plan::Scheme scheme) {
  switch (scheme) {
    case plan::Scheme::kFull:
      return v1::MASK_SCHEME_FULL;
    case plan::Scheme::kCyclic:
      return v1::MASK_SCHEME_CYCLIC;
    case plan::Scheme::kRandomBalanced:
      return v1::MASK_SCHEME_RANDOM_BALANCED;
    case plan::Scheme::kSizeAware:
      return v1::MASK_SCHEME_SIZE_AWARE;
    case plan::Scheme::kPlaced:
      return v1::MASK_SCHEME_PLACED;
  }
  return v1::MASK_SCHEME_UNSPECIFIED;
}

absl::Status Missing(absl::string_view field) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": not set; the job's defaults must be applied first"));
}

int OptimizerSlots(const v1::TrainingJobSpec& spec) {
  if (spec.optimizer().name() != "sgd") return 2;  // adamw
  return spec.optimizer().momentum() > 0 ? 1 : 0;
}

}  // namespace

absl::StatusOr<plan::MaskRequest> MaskRequestFrom(const v1::TrainingJobSpec& spec,
                                                  absl::Span<const plan::WorkerCapacity> capacities) {
  const v1::SubnetworkSpec& subnetwork = spec.subnetwork();
  if (!spec.workers().has_count()) return Missing("spec.workers.count");
  if (!subnetwork.has_coverage() && !subnetwork.coverage_auto()) return Missing("spec.subnetwork.coverage");
  if (!subnetwork.has_ends_always_on()) return Missing("spec.subnetwork.endsAlwaysOn");
  if (!subnetwork.has_seed()) return Missing("spec.subnetwork.seed");

  plan::MaskRequest request;
  request.workers = spec.workers().count();
  TESSERA_ASSIGN_OR_RETURN(request.granularity, GranularityFrom(subnetwork.granularity()));
  if (subnetwork.scheme() == v1::MASK_SCHEME_AUTO) {
    request.scheme = capacities.empty() ? plan::Scheme::kCyclic : plan::Scheme::kPlaced;
  } else {
    TESSERA_ASSIGN_OR_RETURN(request.scheme, SchemeFrom(subnetwork.scheme()));
  }
  request.coverage = subnetwork.has_coverage() ? subnetwork.coverage() : 1;
  request.min_holders = subnetwork.has_min_holders() ? subnetwork.min_holders() : 1;
  request.min_gap = subnetwork.min_gap();
  request.ends_always_on = subnetwork.ends_always_on();
  request.seed = subnetwork.seed();
  const plan::StepShape step = StepShapeFrom(spec);
  request.bytes_per_element = (2 + step.optimizer_slots) * step.bytes_per_element;
  request.capacities.assign(capacities.begin(), capacities.end());
  return request;
}

absl::StatusOr<plan::MaskRequest> MaskRequestFrom(const v1::PlanInputs& inputs) {
  plan::MaskRequest request;
  request.workers = inputs.workers();
  TESSERA_ASSIGN_OR_RETURN(request.granularity, GranularityFrom(inputs.granularity()));
  TESSERA_ASSIGN_OR_RETURN(request.scheme, SchemeFrom(inputs.scheme()));
  request.coverage = inputs.coverage();
  request.min_holders = inputs.min_holders();
  request.min_gap = inputs.min_gap();
  request.ends_always_on = inputs.ends_always_on();
  request.seed = inputs.seed();
  request.bytes_per_element = inputs.state_bytes_per_element();
  for (const v1::WorkerCapacity& capacity : inputs.capacities()) {
    request.capacities.push_back({.usable_bytes = capacity.usable_bytes(),
                                  .relative_speed = capacity.relative_speed(),
                                  .bytes_per_second = capacity.bytes_per_second()});
  }
  request.costs = {inputs.always_on_bytes(),
                   {inputs.unit_bytes().begin(), inputs.unit_bytes().end()},
                   inputs.always_on_bytes_per_sample(),
                   {inputs.unit_bytes_per_sample().begin(), inputs.unit_bytes_per_sample().end()}};
  request.flops_per_second = inputs.flops_per_second();
  request.samples.assign(inputs.samples().begin(), inputs.samples().end());
  request.tokens_per_sample = static_cast<double>(inputs.tokens_per_sample());
  return request;
}

v1::PlanInputs ToInputs(const plan::MaskRequest& request, v1::Masking masking, uint64_t shape_fingerprint) {
  v1::PlanInputs inputs;
  inputs.set_workers(request.workers);
  inputs.set_granularity(ToMessage(request.granularity));
  inputs.set_masking(masking);
  inputs.set_scheme(ToMessage(request.scheme));
  inputs.set_coverage(request.coverage);
  inputs.set_min_holders(request.min_holders);
  inputs.set_min_gap(request.min_gap);
  inputs.set_ends_always_on(request.ends_always_on);
  inputs.set_seed(request.seed);
  inputs.set_shape_fingerprint(shape_fingerprint);
  inputs.set_state_bytes_per_element(request.bytes_per_element);
  for (const plan::WorkerCapacity& capacity : request.capacities) {
    v1::WorkerCapacity& out = *inputs.add_capacities();
    out.set_usable_bytes(capacity.usable_bytes);
    out.set_relative_speed(capacity.relative_speed);
    out.set_bytes_per_second(capacity.bytes_per_second);
  }
  inputs.set_always_on_bytes(request.costs.always_on);
  inputs.mutable_unit_bytes()->Add(request.costs.units.begin(), request.costs.units.end());
  inputs.set_flops_per_second(request.flops_per_second);
  inputs.set_always_on_bytes_per_sample(request.costs.always_on_per_sample);
  inputs.mutable_unit_bytes_per_sample()->Add(request.costs.units_per_sample.begin(),
                                              request.costs.units_per_sample.end());
  inputs.mutable_samples()->Add(request.samples.begin(), request.samples.end());
  inputs.set_tokens_per_sample(static_cast<int64_t>(request.tokens_per_sample));
  return inputs;
}

plan::StepShape StepShapeFrom(const v1::TrainingJobSpec& spec) {
  plan::StepShape step;
  step.batch = spec.workers().batch();
  step.sequence_length = spec.data().sequence_length();
  step.accumulation = spec.schedule().has_accumulation() ? spec.schedule().accumulation() : 1;
  step.optimizer_slots = OptimizerSlots(spec);
  step.sharded = spec.sharding() == v1::SHARDING_FSDP;
  step.checkpointed = spec.activation_checkpointing() == v1::ACTIVATION_CHECKPOINTING_ALWAYS;
  if (spec.activation_checkpointing_every() > 1)
    step.checkpoint_every = spec.activation_checkpointing_every();
  step.backward_masking = spec.subnetwork().masking() == v1::MASKING_BACKWARD;
  step.streamed = spec.subnetwork().absent_weights() == v1::ABSENT_WEIGHTS_STREAMED;
  step.gradient_wire_bytes = spec.gradient_precision() == v1::PRECISION_BF16 ? 2 : 4;
  return step;
}

plan::StepShape StepShapeFrom(const v1::TrainingJobSpec& spec, const plan::ModelShape& shape) {
  plan::StepShape step = StepShapeFrom(spec);
  if (shape.vocab_size == 0 && shape.activations.sequence_length == 1) step.sequence_length = 1;
  return step;
}

}  // namespace tessera::wire

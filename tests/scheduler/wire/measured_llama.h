// A small model with measured activations, a resolved job for it, and its plan.
#pragma once

#include <gtest/gtest.h>

#include "absl/types/span.h"
#include "scheduler/wire/plan_wire.h"
#include "tests/scheduler/plan/shapes.h"
#include "tests/status.h"

namespace tessera::wire {

inline plan::ModelShape MeasuredLlama() {
  plan::ModelShape shape = plan::testing::LlamaShape(
      {.hidden = 64, .layers = 8, .heads = 4, .kv_heads = 2, .ffn = 128, .vocab = 256});
  shape.activations = {.batch = 4,
                       .sequence_length = 32,
                       .kinds = {{.saved = 5000, .forward_transient = 900, .backward_transient = 1500}},
                       .base_saved = 700,
                       .head_transient = 2000,
                       .end_peak = 2600};
  return shape;
}

inline v1::TrainingJobSpec ResolvedSpec() {
  v1::TrainingJobSpec spec;
  spec.mutable_workers()->set_count(4);
  spec.mutable_workers()->set_batch(4);
  spec.mutable_data()->set_sequence_length(32);
  v1::SubnetworkSpec& subnetwork = *spec.mutable_subnetwork();
  subnetwork.set_granularity(v1::GRANULARITY_BLOCK);
  subnetwork.set_masking(v1::MASKING_FORWARD);
  subnetwork.set_coverage(0.5);
  subnetwork.set_min_holders(1);
  subnetwork.set_scheme(v1::MASK_SCHEME_CYCLIC);
  subnetwork.set_ends_always_on(true);
  subnetwork.set_seed(7);
  spec.mutable_optimizer()->set_name("adamw");
  spec.mutable_schedule()->set_steps(100);
  return spec;
}

inline v1::Plan Planned(const plan::ModelShape& shape, const v1::TrainingJobSpec& spec,
                        const PlanContext& context = {},
                        absl::Span<const plan::WorkerCapacity> capacities = {}) {
  const auto plan = PlanJob(shape, spec, context, capacities);
  EXPECT_OK(plan);
  return plan.ok() ? *plan : v1::Plan();
}

}  // namespace tessera::wire

// Between the planner's types and their messages. Scheduler and workers both use
// it, so that a worker can derive the mask plan anew and compare fingerprints.
// Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/plan/cost.h"
#include "scheduler/plan/mask_plan.h"
#include "scheduler/plan/model_shape.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/plan.pb.h"

namespace tessera::wire {

v1::ModelShape ToMessage(const plan::ModelShape& shape);
// InvalidArgument names the field that makes no sense: a block out of range, axes that
// do not match the dimensions, an unknown axis.
absl::StatusOr<plan::ModelShape> FromMessage(const v1::ModelShape& message);

// The mask request of a resolved job (defaults applied). `capacities` is empty (workers that are alike) or
// has one entry per worker; scheme auto is placed with them and cyclic without. coverage_auto is the
// caller's: it sets request.coverage from plan::NearestCoverage. InvalidArgument for a field without a value
// that has no default; Unimplemented for what no planner exists for yet, each naming the field.
absl::StatusOr<plan::MaskRequest> MaskRequestFrom(const v1::TrainingJobSpec& spec,
                                                  absl::Span<const plan::WorkerCapacity> capacities = {});
absl::StatusOr<plan::MaskRequest> MaskRequestFrom(const v1::PlanInputs& inputs);
v1::PlanInputs ToInputs(const plan::MaskRequest& request, v1::Masking masking, uint64_t shape_fingerprint);

// The micro-step of a resolved job.
plan::StepShape StepShapeFrom(const v1::TrainingJobSpec& spec);
// The same for a model: an image is one token, whatever the job's sequence length.
plan::StepShape StepShapeFrom(const v1::TrainingJobSpec& spec, const plan::ModelShape& shape);

// Share of the memory limit that an automatic coverage leaves free, for what no prediction sees.
inline constexpr double kAutoCoverageMargin = 0.05;

struct PlanContext {
  int64_t generation = 1;
  int epoch = 0;
  std::string reason;  // why this plan was made, a sentence
  v1::Masking masking = v1::MASKING_FORWARD;
  int64_t steps = 0;               // of the job before flop matching
  bool flop_matched = false;       // extend them by the inverse of the held share of FLOPs
  int64_t memory_limit_bytes = 0;  // per worker, of counted tensors; 0 = unknown. Not read with capacities
  double cores_per_worker = 0;     // like those the shape was measured on; 0 = unknown
  double flops_per_second = 0;     // of a worker with relative speed 1, in place of its cores; 0 = unknown
  int64_t resample_every = 0;      // steps; 0 = masks stay
  double bytes_per_second = 0;     // of each worker's link; 0 = unknown. Not read with capacities
};

// The whole message: inputs, units with holders, memory and traffic per worker, quality of
// the mask graph, alternatives, fit and (when it does not fit) the nearest coverage.
// create_time and the workers' nodes are left to the caller. `limits` as PlanJob's capacities.
v1::Plan MakePlanMessage(const plan::ModelShape& shape, const plan::MaskRequest& request,
                         const plan::MaskPlan& mask, const plan::StepShape& step, const PlanContext& context,
                         absl::Span<const plan::WorkerCapacity> limits = {});

v1::MemoryBreakdown ToMessage(const plan::MemoryPrediction& memory);

// Writes plan.dropping for a job that asks for it, and the workers' memory and traffic under it, the largest
// over `masks`, of which the first is the plan's (resampling_message.h). `limit` as in PlanContext decides
// what the job leaves open: the residual, the rule, and whether the warm-up can be dense. InvalidArgument: a
// density that cannot be met.
absl::Status AddDropping(const plan::ModelShape& shape, absl::Span<const plan::MaskPlan> masks,
                         const v1::TrainingJobSpec& spec, const plan::StepShape& step, int64_t limit,
                         v1::Plan* message);

// What the workers have measured of a parameter since the budgets were made.
struct LayerMeasure {
  double root_second_moment = 0;  // sum over its elements
  double spike = 1;
};

// The plan with budgets divided anew by `measures` (by parameter; empty: by size), within the job's
// layerLimits, and predictions that follow. generation, reason and create_time are left to the caller.
// InvalidArgument: limits that name no layer, or cannot sum. ResourceExhausted: a worker would need more than
// it has.
absl::StatusOr<v1::Plan> Rebudget(const plan::ModelShape& shape, const v1::TrainingJobSpec& spec,
                                  const v1::Plan& plan, absl::Span<const LayerMeasure> measures);
// Likewise, with the budgets of an earlier plan of the job.
absl::StatusOr<v1::Plan> WithBudgetsOf(const plan::ModelShape& shape, const v1::TrainingJobSpec& spec,
                                       const v1::Plan& plan, const v1::Plan& earlier);
// The layers that gain and lose most, with their densities, for people.
std::string DescribeBudgetChange(const plan::ModelShape& shape, const v1::Plan& before,
                                 const v1::Plan& after);

// All of the above for a resolved job: request, mask plan, message. `capacities` are those of unlike workers,
// their usable_bytes each one's memory limit. With coverage_auto it
// takes the largest coverage that fits the limits less kAutoCoverageMargin (ResourceExhausted
// when none does; 1 when no limit is known). A plan that does not fit is returned with its `fit` saying
// so. context.masking, steps and flop_matched are taken from the spec (epochs of shape.training_samples;
// context.steps is kept when those are not known). Automatic activation checkpointing is decided here: the
// plan says which, and why.
absl::StatusOr<v1::Plan> PlanJob(const plan::ModelShape& shape, const v1::TrainingJobSpec& spec,
                                 const PlanContext& context,
                                 absl::Span<const plan::WorkerCapacity> capacities = {});

// What a worker does with the plan it is handed: derives the mask plan from `shape` and
// plan.inputs(). FailedPrecondition, naming both fingerprints, when shape or mask plan
// differ from what the scheduler saw.
absl::StatusOr<plan::MaskPlan> RecomputeMaskPlan(const plan::ModelShape& shape, const v1::Plan& plan);

}  // namespace tessera::wire

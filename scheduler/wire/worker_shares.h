// What part of the gradients each worker contributes, from the links in a plan's inputs and the job's
// workerLimits.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/cost.h"
#include "scheduler/plan/dropping_cost.h"
#include "tessera/v1/plan.pb.h"

namespace tessera::wire {

// '*' stands for any characters.
bool Matches(absl::string_view pattern, absl::string_view name);

// InvalidArgument: a limit of layers that names no parameter of the plan.
absl::Status CheckLayerLimits(const v1::DroppingPlan& dropping, absl::Span<const v1::DensityLimit> limits);

// Of the workers' links what is known: the slowest; 0 = unknown.
double SlowestLink(const v1::TrainingJobSpec& spec, const v1::Plan& plan);

struct WorkerShares {
  std::vector<double> shares;  // of what is kept, 0-1, the largest is 1; empty: all contribute everything
  double density = 0;          // what the workers with share 1 keep; the job's is the mean of all
  double seconds = 0;          // when the last worker has sent its share; 0 = unknown
  std::string reason;          // a sentence; empty: nothing to say
};

// Unequal where the job sets bounds, or where unlike links make the slowest worker's sending at least a
// quarter longer with equal ones: an unequal share is worth that, as it costs loss
// (docs/results/dropping.md). `costs` are those of equal shares; `limit`: bytes at a worker's peak, 0 =
// unknown: everyone receives what the strongest keeps, so its ring must fit everywhere. InvalidArgument:
// bounds that cannot sum, or name no worker.
absl::StatusOr<WorkerShares> DivideWorkers(const plan::ModelShape& shape, const plan::MaskPlan& mask,
                                           const v1::TrainingJobSpec& spec, const plan::StepShape& step,
                                           const v1::Plan& plan, const plan::Dropping& costs, int64_t limit);

}  // namespace tessera::wire

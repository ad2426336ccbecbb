// From a resolved job to its plan: describe, mask, predict, check that it fits.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/controller/controller.h"
#include "scheduler/job/admission.h"
#include "scheduler/launch/launcher.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/plan.pb.h"

namespace tessera::scheduler {

// Workers may use what OffersTo says. InvalidArgument: schedule.epochs of data whose size is not
// known. A plan that does not fit is returned with its `fit` saying so. May take as long as describing the
// model does.
absl::StatusOr<v1::Plan> MakeJobPlan(const v1::TrainingJobSpec& spec, ModelDescriber& describer,
                                     const ControllerOptions& options, absl::Time now);

// Whether the scheduler may give the job fewer or more workers than spec.workers.count.
bool IsElastic(const v1::WorkersSpec& workers);

// Of a job that gets as many workers up to spec.workers.count as fit, and no fewer than spec.workers.min:
// where no number fits, what MakeJobPlan says of the first.
absl::StatusOr<v1::Plan> MakeElasticPlan(const v1::TrainingJobSpec& spec, ModelDescriber& describer,
                                         const ControllerOptions& options, absl::Time now);

// What to tell of an elastic job that was planned with fewer workers than it asks for; "" otherwise.
std::string FewerWorkers(const v1::TrainingJobSpec& spec, const v1::Plan& plan);

// ResourceExhausted with what is missing and the nearest coverage that fits.
absl::Status CheckFits(const v1::Plan& plan);

// ResourceExhausted, with what to change: over NCCL a worker would need more communicators than it makes.
absl::Status CheckCommunicators(const v1::TrainingJobSpec& spec, const v1::Plan& plan);

// Whether planning or starting again would end as this did.
bool CanNeverWork(const absl::Status& status);

// What the job takes of each node, and of the machine's GPUs, while it holds capacity.
job::Demand ClaimOf(const v1::Plan& plan, const v1::TrainingJobSpec& spec, const ControllerOptions& options);

}  // namespace tessera::scheduler

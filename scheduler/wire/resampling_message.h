// Masks that change, in a plan (scheduler/plan/mask_schedule.h).
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "scheduler/plan/mask_schedule.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/plan.pb.h"

namespace tessera::wire {

// InvalidArgument: the job wants its masks to change and has no two units that could trade holders.
absl::Status CheckResampling(const v1::TrainingJobSpec& spec, const plan::ModelShape& shape,
                             const plan::MaskPlan& first);

// Of the run that `plan` is for: its own masks first, then those that follow.
std::vector<plan::MaskPlan> MasksOf(const plan::ModelShape& shape, const plan::MaskPlan& first,
                                    const v1::Plan& plan);

// With several masks: each worker's memory becomes that of the masks under which it needs most.
void CoverAllMasks(const plan::ModelShape& shape, absl::Span<const plan::MaskPlan> masks,
                   const plan::StepShape& step, v1::Plan* plan);
// What the changes themselves take, beside the memory that is there: a phase "resample", bytes sent, and
// plan.resampling.
void AddMoves(const plan::ModelShape& shape, absl::Span<const plan::MaskPlan> masks,
              const plan::StepShape& step, v1::Plan* plan);

}  // namespace tessera::wire

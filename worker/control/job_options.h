// What a resolved job asks of a worker, in the worker's own types. Everything the
// worker can't do is refused here by the field's name; nothing is ignored.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/plan/mask_plan.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/worker.pb.h"
#include "worker/train/trainer.h"

namespace tessera::worker {

// Unimplemented names the first field that no worker supports yet.
absl::Status CheckSupported(const v1::TrainingJobSpec& spec);

// samples: of the training data, for a schedule in epochs. InvalidArgument: no length is given.
absl::StatusOr<TrainerOptions> TrainerOptionsOf(const v1::Assignment& assignment, const plan::MaskPlan& plan,
                                                int64_t samples);

// The longest that a peer may rightly be silent.
absl::Duration CollectiveTimeout(const v1::DeadlinesSpec& deadlines);
absl::Duration RendezvousTimeout(const v1::DeadlinesSpec& deadlines);

}  // namespace tessera::worker

// A plan without a service and without data: the model is described here.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/plan.pb.h"

namespace tessera::cli {

struct OfflinePlanOptions {
  std::string worker_program;   // tessera-worker
  std::string cache_directory;  // of described models; "": none
};

// `job` before defaults; it needs no data. resources.memory_limit_bytes is taken as the memory of a worker's
// device; 0: whether the plan fits stays unknown. Runs one block of the model, never all of it. Errors
// carry the violations of the job.
absl::StatusOr<v1::Plan> PlanOffline(v1::TrainingJob job, const OfflinePlanOptions& options);

}  // namespace tessera::cli

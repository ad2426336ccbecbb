// What each worker of a job may use: from its spec, the machine, and the nodes that agents report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/controller/controller.h"
#include "scheduler/plan/mask_plan.h"
#include "tessera/v1/job.pb.h"

namespace tessera::scheduler {

struct WorkerOffers {
  // Of workers that are unlike; empty: all are alike, and may use limit_bytes each (0 = unknown).
  std::vector<plan::WorkerCapacity> capacities;
  int64_t limit_bytes = 0;
  double cores = 0;                    // of a worker with relative speed 1
  double bytes_per_second = 0;         // of the link of workers that are alike; 0 = unknown
  double flops_per_second = 0;         // of the same where the job states it; 0: by cores
  std::vector<std::string> nodes;      // by rank
  std::vector<v1::LinkProfile> links;  // between those nodes, that they were chosen by
};

// With options.inventory the workers are spread over its nodes, and ranks follow measured round-trip times
// (plan::ChooseNodes); without, all run on options.node and what they ask for beyond its memory is cut in
// proportion. InvalidArgument: resources.per_worker has another length than there are workers.
// ResourceExhausted, with numbers: the processes alone take all there is. Unavailable: the inventory has no
// node that reports.
absl::StatusOr<WorkerOffers> OffersTo(const v1::TrainingJobSpec& spec, const ControllerOptions& options);

// Memory that all jobs together may claim: options.memory_bytes, or, where that is 0 and there is an
// inventory, what its nodes have less what is left to others. 0 = unknown.
int64_t CapacityOf(const ControllerOptions& options);

}  // namespace tessera::scheduler

// What each worker of a job may use: from its spec, the machine, and the nodes that agents report.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/controller/controller.h"
#include "scheduler/job/admission.h"
#include "scheduler/plan/mask_plan.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/plan.pb.h"

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
// `measured` is what a worker takes of it beside its tensors, as the model's shape has it; unset: not
// measured.
absl::StatusOr<WorkerOffers> OffersTo(const v1::TrainingJobSpec& spec, const ControllerOptions& options,
                                      const v1::ProcessMemory& measured = {});

// What jobs may have of the machine, or of each node of the inventory that has reported lately; and of all
// together, if options.memory_bytes says so.
std::map<std::string, job::NodeMemory> MemoryOfNodes(const ControllerOptions& options);
// GPUs of this machine that jobs may have; 0: unknown, or a cluster hands them out.
int GpuCount(const ControllerOptions& options);
// Adds what a worker on a node takes to where MemoryOfNodes counts it.
void AddAt(const ControllerOptions& options, const std::string& node, int64_t bytes, job::NodeBytes* sum);

}  // namespace tessera::scheduler

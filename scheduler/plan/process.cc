#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "scheduler/plan/cost.h"

namespace tessera::plan {
namespace {

// Connections of a worker: the world's and those of the sets of holders it is in, each once more for weights
// where those travel among the same holders.
int64_t Communicators(const MaskPlan& plan, int worker, const StepShape& step) {
  if (plan.workers() < 2) return 0;
  int64_t sets = 0;
  bool world = false;
  for (const std::vector<int>& holders : plan.HolderSets()) {
    if (holders.size() < 2 || !std::binary_search(holders.begin(), holders.end(), worker)) continue;
    ++sets;
    world |= static_cast<int>(holders.size()) == plan.workers();
  }
  const bool to_all = step.backward_masking && (step.streamed || step.sharded);
  return sets + (world ? 0 : 1) + (step.sharded ? sets : 0) + (to_all && !(step.sharded && world) ? 1 : 0);
}

}  // namespace

int64_t PredictProcess(const ModelShape& shape, const MaskPlan& plan, int worker, const StepShape& step,
                       int64_t peak) {
  const ProcessMemory& process = shape.process;
  if (process.base <= 0) return 0;
  return process.base + std::llround(process.slack * static_cast<double>(peak)) +
         process.communicator * Communicators(plan, worker, step);
}

}  // namespace tessera::plan

#include "scheduler/plan/process.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "scheduler/plan/cost.h"

namespace tessera::plan {
namespace {

// What one block's steps do not show of the holes that whole models leave in the heap in some hundred steps:
// 27 MiB were measured beside 18 and 31 beside 90 MiB of tensors, none beside 0.2.
constexpr int64_t kMostHoles = int64_t{32} << 20;
constexpr double kHoles = 1.5;  // at most, as a ratio to the tensors

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

int64_t HeapBeside(double slack, int64_t tensors) {
  const auto bytes = static_cast<double>(tensors);
  return std::llround(std::max(slack * bytes, std::min(kHoles * bytes, static_cast<double>(kMostHoles))));
}

int64_t TensorsIn(double slack, int64_t bytes) {
  const auto all = static_cast<double>(bytes);
  const double holed = std::max(all / (1 + kHoles), all - static_cast<double>(kMostHoles));
  return static_cast<int64_t>(std::min(all / (1 + slack), holed));
}

int64_t PredictProcess(const ModelShape& shape, const MaskPlan& plan, int worker, const StepShape& step,
                       int64_t peak) {
  const ProcessMemory& process = shape.process;
  if (process.base <= 0) return 0;
  return process.base + kClientBytes + HeapBeside(process.slack, peak) +
         process.communicator * Communicators(plan, worker, step);
}

}  // namespace tessera::plan

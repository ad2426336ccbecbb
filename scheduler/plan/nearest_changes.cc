#include <algorithm>

#include "absl/functional/function_ref.h"
#include "scheduler/plan/cost.h"
#include "scheduler/plan/holder_counts.h"

namespace tessera::plan {
namespace {

constexpr int kMostWorkersTried = 256;

// The largest value below `now` for which `fits`, 0 if none: what fits at some value fits below it.
int64_t LargestBelow(int64_t now, absl::FunctionRef<bool(int64_t)> fits) {
  int64_t low = 0;
  int64_t high = now;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

int FewestWorkers(const ModelShape& shape, MaskRequest request, const StepShape& step, int64_t limit) {
  const double holders = MeanHolders(request.coverage, request.workers);
  if (!request.capacities.empty() || request.scheme == Scheme::kFull) return 0;
  const int most = std::min(4 * request.workers, kMostWorkersTried);
  for (int workers = request.workers + 1; workers <= most; ++workers) {
    request.workers = workers;
    request.coverage = holders / workers;
    if (FitsEverywhere(shape, request, step, limit)) return workers;
  }
  return 0;
}

}  // namespace

bool FitsEverywhere(const ModelShape& shape, const MaskRequest& request, const StepShape& step,
                    int64_t limit) {
  const absl::StatusOr<MaskPlan> plan = MakeMaskPlan(shape, request);
  if (!plan.ok()) return false;
  for (int w = 0; w < request.workers; ++w) {
    if (PredictMemory(shape, *plan, w, step).peak > limit) return false;
  }
  return true;
}

NearestChanges FindNearestChanges(const ModelShape& shape, const MaskRequest& request, const StepShape& step,
                                  int64_t limit) {
  NearestChanges changes;
  changes.coverage = NearestCoverage(shape, request, step, limit);
  changes.batch = LargestBelow(step.batch, [&](int64_t batch) {
    StepShape smaller = step;
    smaller.batch = batch;
    return FitsEverywhere(shape, request, smaller, limit);
  });
  changes.sequence_length = LargestBelow(step.sequence_length, [&](int64_t length) {
    StepShape shorter = step;
    shorter.sequence_length = length;
    return FitsEverywhere(shape, request, shorter, limit);
  });
  changes.workers = FewestWorkers(shape, request, step, limit);
  return changes;
}

}  // namespace tessera::plan

#include <algorithm>

#include "scheduler/plan/bisection.h"
#include "scheduler/plan/cost.h"
#include "scheduler/plan/holder_counts.h"

namespace tessera::plan {
namespace {

constexpr int kMostWorkersTried = 256;

int FewestWorkers(const ModelShape& shape, MaskRequest request, const StepShape& step, MemoryLimits limits) {
  const double holders = MeanHolders(request.coverage, request.workers);
  if (!request.capacities.empty() || request.scheme == Scheme::kFull) return 0;
  const int most = std::min(4 * request.workers, kMostWorkersTried);
  for (int workers = request.workers + 1; workers <= most; ++workers) {
    request.workers = workers;
    request.coverage = holders / workers;
    limits.push_back(limits.back());
    if (FitsEverywhere(shape, request, step, limits)) return workers;
  }
  return 0;
}

}  // namespace

bool FitsEverywhere(const ModelShape& shape, const MaskRequest& request, const StepShape& step,
                    const MemoryLimits& limits) {
  const absl::StatusOr<MaskRequest> within = WithinLimits(shape, request, step, limits);
  if (!within.ok()) return false;
  const absl::StatusOr<MaskPlan> plan = MakeMaskPlan(shape, *within);
  if (!plan.ok()) return false;
  for (int w = 0; w < request.workers; ++w) {
    const int64_t limit = limits[static_cast<size_t>(w)];
    if (limit > 0 && PredictMemory(shape, *plan, w, step).peak > limit) return false;
  }
  return true;
}

NearestChanges FindNearestChanges(const ModelShape& shape, const MaskRequest& asked,
                                  const StepShape& asked_step, const MemoryLimits& limits) {
  MaskRequest request = asked;  // with equal batches: a change of them is one of its own
  request.samples.clear();
  StepShape step = asked_step;
  step.batches.clear();
  NearestChanges changes;
  changes.coverage = NearestCoverage(shape, request, step, limits);
  const auto fits_with = [&](auto change) {
    StepShape changed = step;
    change(changed);
    return FitsEverywhere(shape, request, changed, limits);
  };
  changes.batch = LargestFitting(
      0, step.batch, [&](int64_t batch) { return fits_with([&](StepShape& s) { s.batch = batch; }); });
  changes.sequence_length = LargestFitting(0, step.sequence_length, [&](int64_t length) {
    return fits_with([&](StepShape& s) { s.sequence_length = length; });
  });
  changes.checkpointed = !step.checkpointed && fits_with([](StepShape& s) { s.checkpointed = true; });
  changes.sharded = !step.sharded && request.workers > 1 && fits_with([](StepShape& s) { s.sharded = true; });
  changes.workers = FewestWorkers(shape, request, step, limits);
  return changes;
}

}  // namespace tessera::plan

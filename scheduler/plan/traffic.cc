#include "scheduler/plan/cost.h"
#include "scheduler/plan/unit_sets.h"

namespace tessera::plan {

int64_t PredictTraffic(const MaskPlan& plan, int worker, const StepShape& step) {
  const int64_t n = plan.workers();
  const int64_t passes = step.accumulation;
  const bool streamed = step.backward_masking && (step.streamed || step.sharded);
  int64_t bytes = 0;
  for (const UnitSet& set : UnitSets(plan)) {
    const int64_t k = static_cast<int64_t>(set.holders.size());
    const int64_t weights = set.elements * step.bytes_per_element;
    if (set.Holds(worker) && !step.sharded)
      bytes += 2 * (k - 1) * set.elements * step.gradient_wire_bytes / k;
    if (set.Holds(worker) && step.sharded) {
      const int64_t shard = set.Kept(true);
      const int64_t gathers = set.block == kNoBlock ? 1 : 2;
      bytes += passes * (k - 1) * shard * (gathers * step.bytes_per_element + step.gradient_wire_bytes);
    }
    if (step.backward_masking && k < n) bytes += (streamed ? 2 * passes : 1) * (n - 1) * weights / n;
  }
  return bytes;
}

int64_t PredictTraffic(const MaskPlan& plan, int worker, int64_t bytes_per_element) {
  return PredictTraffic(
      plan, worker,
      StepShape{.bytes_per_element = bytes_per_element, .gradient_wire_bytes = bytes_per_element});
}

}  // namespace tessera::plan

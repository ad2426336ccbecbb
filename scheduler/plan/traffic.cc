#include "scheduler/plan/cost.h"

namespace tessera::plan {

int64_t PredictTraffic(const MaskPlan& plan, int worker, int64_t bytes_per_element) {
  int64_t bytes = 0;
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    const int64_t holders = static_cast<int64_t>(plan.Holders(u).size());
    if (holders < 2 || plan.units()[u].elements == 0 || !plan.Holds(worker, u)) continue;
    bytes += 2 * (holders - 1) * (plan.units()[u].elements + 1) * bytes_per_element / holders;
  }
  return bytes;
}

}  // namespace tessera::plan

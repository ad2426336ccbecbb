#include "scheduler/plan/flop_matching.h"

#include <algorithm>
#include <cmath>

namespace tessera::plan {

double HeldFlopsShare(const MaskPlan& plan, bool backward_masking) {
  double whole = 0;
  for (const Unit& unit : plan.units()) whole += unit.flops_per_token;
  if (whole <= 0 || plan.workers() == 0) return 1;
  double held = 0;
  for (int w = 0; w < plan.workers(); ++w) held += plan.FlopsPerToken(w);
  const double share = held / (whole * plan.workers());
  return backward_masking ? (2 + share) / 3 : share;
}

int64_t FlopMatchedSteps(const MaskPlan& plan, int64_t steps, bool backward_masking) {
  return std::max<int64_t>(steps,
                           std::llround(static_cast<double>(steps) / HeldFlopsShare(plan, backward_masking)));
}

}  // namespace tessera::plan

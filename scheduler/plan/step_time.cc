#include <algorithm>
#include <vector>

#include "scheduler/plan/cost.h"

namespace tessera::plan {

double PredictComputeSeconds(const ModelShape& shape, const MaskPlan& plan, int worker,
                             const StepShape& step) {
  const ActivationProfile& profile = shape.activations;
  if (profile.kinds.empty() || profile.head_seconds_per_token <= 0) return 0;
  std::vector<double> held(shape.blocks.size(), 0.0), whole(shape.blocks.size(), 0.0);
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    const Unit& unit = plan.units()[u];
    if (unit.block == kNoBlock) continue;
    whole[unit.block] += unit.flops_per_token;
    if (plan.Holds(worker, u)) held[unit.block] += unit.flops_per_token;
  }
  double seconds = profile.head_seconds_per_token;
  for (size_t b = 0; b < shape.blocks.size(); ++b) {
    const int kind = shape.blocks[b].kind;
    if (kind < 0 || kind >= static_cast<int>(profile.kinds.size()) || whole[b] <= 0) continue;
    const BlockActivation& block = profile.kinds[kind];
    const double share = held[b] / whole[b];
    const double forward =
        block.forward_seconds_per_token > 0 ? block.forward_seconds_per_token : block.seconds_per_token / 3;
    const double weights = (block.seconds_per_token - forward) / 2;  // as many products as input gradients
    const double again = step.Checkpoints(static_cast<int>(b)) ? forward : 0;
    // Of a cut weight all rows' gradients are computed where backward masking has all rows at hand.
    seconds += step.backward_masking ? block.seconds_per_token + again - (share > 0 ? 0 : weights)
                                     : (block.seconds_per_token + again) * share;
  }
  return seconds * static_cast<double>(step.BatchOf(worker)) * static_cast<double>(step.sequence_length) *
         step.accumulation;
}

}  // namespace tessera::plan

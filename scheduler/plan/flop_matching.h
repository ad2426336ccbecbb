// Longer runs for smaller subnetworks, so that compute is spent equally.
#pragma once

#include <cstdint>

#include "scheduler/plan/mask_plan.h"

namespace tessera::plan {

// Mean over workers of the share of the model's FLOPs that a worker computes, 0-1;
// the part outside the blocks counts. 1 when no FLOPs are known.
// Backward masking runs every unit forward and back and leaves the weight gradients of absent ones out, a
// third of their FLOPs.
double HeldFlopsShare(const MaskPlan& plan, bool backward_masking = false);

// Steps after which the workers together have spent as many FLOPs as `steps` steps of
// plain data parallelism: steps / HeldFlopsShare, to the nearest whole step.
int64_t FlopMatchedSteps(const MaskPlan& plan, int64_t steps, bool backward_masking = false);

}  // namespace tessera::plan

// What a mask request asks of the placement of placement.h.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/mask_plan.h"
#include "scheduler/plan/mask_scheme.h"
#include "scheduler/plan/model_shape.h"
#include "scheduler/plan/placement.h"

namespace tessera::plan {

PlacementRequest PlacementQuestion(const SchemeInput& input);

// `samples` per worker and micro-step in the mean, divided among the request's workers so that all finish a
// step together; with the costs, tokens and capacities of the request. All alike when nothing is known that
// tells the workers apart, or when no division is faster. Errors as of MakeMaskPlan.
absl::StatusOr<std::vector<int64_t>> BalanceSamples(const ModelShape& shape, const MaskRequest& request,
                                                    int64_t samples);

}  // namespace tessera::plan

// From a placement request to plain numbers, and what can be said before any search. Internal to
// placement*.cc.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/plan/placement_instance.h"

namespace tessera::plan {

absl::Status CheckPlacementRequest(const PlacementRequest& request);

// Precondition: CheckPlacementRequest passes; `samples` has one entry per worker.
PlacementInstance MakeInstance(const PlacementRequest& request, const std::vector<int64_t>& samples);

// A reason why no placement exists, found without search; none if it can't be excluded. Nearest changes are
// left 0.
std::optional<Infeasibility> ProveInfeasible(const PlacementRequest& request,
                                             const PlacementInstance& instance);
Infeasibility PackingFailure(const PlacementRequest& request, const Holding& closest, bool proven);
Infeasibility GapFailure(const PlacementRequest& request, double reached, bool proven);

// No larger coverage fits, 0-1.
double CoverageBound(const PlacementRequest& request);

}  // namespace tessera::plan

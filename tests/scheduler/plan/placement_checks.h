// What a placement has to keep to, computed anew from the request.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/placement.h"

namespace tessera::plan {

using Holders = std::vector<std::vector<int>>;  // of each unit

// Bytes that the worker may fill: what it has, or the least that any has if that is unknown, less the margin.
int64_t UsableBytes(const PlacementRequest& request, int worker);

// Bytes that the worker fills with what it holds and `samples` at a time.
int64_t NeededBytes(const PlacementRequest& request, const Holders& holders, int worker, int64_t samples);

// Holders that each unit needs for the request's coverage.
std::vector<int> Counts(const PlacementRequest& request);

// Fails the test in words where the placement breaks a constraint or states something wrong of itself.
void ExpectConstraintsHold(const PlacementRequest& request, const Placement& placement);

}  // namespace tessera::plan

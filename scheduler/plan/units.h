// The units of a model: what a worker can hold or not.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/mask_plan.h"
#include "scheduler/plan/model_shape.h"

namespace tessera::plan {

// Neurons and heads of a block are given out in at most this many chunks per axis: few distinct
// holder sets, yet fine enough for coverage in steps of 1/16.
inline constexpr int64_t kMostChunks = 16;

struct UnitTable {
  std::vector<Unit> units;    // unit 0 is everything outside the blocks
  std::vector<Slice> slices;  // by parameter, then by begin
};

// `ends_always_on` keeps the first and the last block on every worker; blocks without a shortcut
// always are. With neuron granularity the chunks of an axis are the largest divisor of what the shape
// allows, up to kMostChunks, that is a multiple of `workers` (so that each worker gets as many), or
// else the largest divisor up to kMostChunks. InvalidArgument names the parameter that can't be cut so.
absl::StatusOr<UnitTable> MakeUnits(const ModelShape& shape, Granularity granularity, bool ends_always_on,
                                    int workers);

}  // namespace tessera::plan

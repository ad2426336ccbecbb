// The units of a model: what a worker can hold or not.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/mask_plan.h"
#include "scheduler/plan/model_shape.h"

namespace tessera::plan {

struct UnitTable {
  std::vector<Unit> units;             // unit 0 is everything outside the blocks
  std::vector<int> unit_of_parameter;  // by index of ModelShape::parameters
};

// Units at block granularity. `ends_always_on` keeps the first and the last block
// on every worker; blocks without a shortcut always are. Unimplemented for neurons.
absl::StatusOr<UnitTable> MakeUnits(const ModelShape& shape, Granularity granularity, bool ends_always_on);

}  // namespace tessera::plan

// Units of one block with the same holders: they are reduced, sharded and sent together.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/mask_plan.h"

namespace tessera::plan {

struct UnitSet {
  int block = kNoBlock;
  std::vector<int> holders;
  int64_t elements = 0;

  bool Holds(int worker) const;
  // What a holder keeps of the states: all, or its shard, rounded up.
  int64_t Kept(bool sharded) const;
};

// In the order of their first units.
std::vector<UnitSet> UnitSets(const MaskPlan& plan);

}  // namespace tessera::plan

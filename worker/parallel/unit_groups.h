// Units of one block with the same holders share their fate: they are reduced, sharded and sent
// together. Pure: the same groups, in the same order and layout, on holders and non-holders.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "scheduler/plan/mask_plan.h"

namespace tessera::worker {

// A unit's slice of a parameter in the group's flat tensors. Its elements are in row order: the
// dimension that is cut comes first, then the others in the parameter's order.
struct GroupSlot {
  plan::Slice slice;
  int64_t offset = 0;
};

struct UnitGroup {
  int block = plan::kNoBlock;
  std::vector<int> units;    // ascending
  std::vector<int> holders;  // ascending; the first owns the units
  // Parameters under weight decay in the model's order, then the others; within one by unit.
  std::vector<GroupSlot> slots;
  int64_t elements = 0;
  int64_t decayed = 0;  // the first `decayed` elements are under weight decay

  int owner() const { return holders[0]; }
  bool Holds(int rank) const;
};

// By block, those outside the blocks first, then by their first unit.
std::vector<UnitGroup> GroupUnits(const plan::ModelShape& shape, const plan::MaskPlan& plan);

// One parameter's part of a group: consecutive elements of the group's flat tensors, and consecutive
// rows of a working tensor that several groups fill.
struct GroupPiece {
  int parameter = 0;
  int64_t row = 0;   // first, in the working tensor
  int64_t rows = 0;  // along the cut dimension
  int64_t offset = 0;
  int64_t home = 0;  // first element in the block's working memory
  int64_t elements = 0;
  bool decay = true;
};

// A parameter made of the given groups.
struct WorkingParameter {
  int parameter = 0;
  int dim = 0;  // that is cut; outermost in memory
  int64_t rows = 0;
  int64_t home = 0;
};

// Working memory of a block on a rank that has the groups at hand: all parameters one behind the other,
// each the groups' rows in the order given. With one group it is that group's flat tensor.
struct WorkingLayout {
  std::vector<WorkingParameter> parameters;
  std::vector<std::vector<GroupPiece>> pieces;  // as the groups
  int64_t elements = 0;
};
WorkingLayout LayOutBlock(const plan::ModelShape& shape, const std::vector<const UnitGroup*>& groups);

// Elements in row order -> in the parameter's own order of dimensions; a view.
at::Tensor FromRows(const plan::Parameter& parameter, int dim, const at::Tensor& flat);
// The reverse, a view where the memory allows it: [rows, rest...].
at::Tensor ToRows(int dim, const at::Tensor& value);
// Of a group's flat tensor, in the slice's own shape.
at::Tensor SlotView(const plan::ModelShape& shape, const GroupSlot& slot, const at::Tensor& flat);

}  // namespace tessera::worker

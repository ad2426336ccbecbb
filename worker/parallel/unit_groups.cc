#include "worker/parallel/unit_groups.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::worker {

bool UnitGroup::Holds(int rank) const { return std::binary_search(holders.begin(), holders.end(), rank); }

std::vector<UnitGroup> GroupUnits(const plan::ModelShape& shape, const plan::MaskPlan& plan) {
  std::vector<UnitGroup> groups;
  std::vector<int> group_of_unit;
  std::map<std::pair<int, std::vector<int>>, int> known;
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    const auto span = plan.Holders(u);
    std::vector<int> holders(span.begin(), span.end());
    const auto [it, fresh] =
        known.emplace(std::pair(plan.units()[u].block, holders), static_cast<int>(groups.size()));
    if (fresh) {
      groups.emplace_back();
      groups.back().block = plan.units()[u].block;
      groups.back().holders = std::move(holders);
    }
    groups[it->second].units.push_back(u);
    group_of_unit.push_back(it->second);
  }
  for (const bool decay : {true, false}) {
    for (const plan::Slice& slice : plan.slices()) {
      if (shape.parameters[slice.parameter].decay != decay) continue;
      UnitGroup& group = groups[group_of_unit[slice.unit]];
      group.slots.push_back({slice, group.elements});
      group.elements += slice.elements;
    }
    if (!decay) continue;
    for (UnitGroup& group : groups) group.decayed = group.elements;
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const UnitGroup& a, const UnitGroup& b) { return a.block < b.block; });
  return groups;
}

WorkingLayout LayOutBlock(const plan::ModelShape& shape, const std::vector<const UnitGroup*>& groups) {
  WorkingLayout layout;
  layout.pieces.resize(groups.size());
  std::vector<size_t> next(groups.size(), 0);  // slot of each group that is not laid out
  for (const bool decay : {true, false}) {
    for (int p = 0; p < static_cast<int>(shape.parameters.size()); ++p) {
      if (shape.parameters[p].decay != decay || shape.parameters[p].block != groups[0]->block) continue;
      WorkingParameter working{.parameter = p, .home = layout.elements};
      for (size_t g = 0; g < groups.size(); ++g) {
        const auto& slots = groups[g]->slots;
        GroupPiece piece{.parameter = p, .row = working.rows, .home = layout.elements, .decay = decay};
        for (; next[g] < slots.size() && slots[next[g]].slice.parameter == p; ++next[g]) {
          const GroupSlot& slot = slots[next[g]];
          if (piece.rows == 0) piece.offset = slot.offset;
          working.dim = slot.slice.dim;
          piece.rows += slot.slice.length;
          piece.elements += slot.slice.elements;
        }
        if (piece.rows == 0) continue;
        working.rows += piece.rows;
        layout.elements += piece.elements;
        layout.pieces[g].push_back(piece);
      }
      // Of a parameter whose slices are all elsewhere no rows are left, but the block still sees it.
      for (size_t d = 0; working.rows == 0 && d < shape.parameters[p].axes.size(); ++d) {
        if (shape.parameters[p].axes[d] != plan::Axis::kNone) working.dim = static_cast<int>(d);
      }
      layout.parameters.push_back(working);
    }
  }
  return layout;
}

at::Tensor FromRows(const plan::Parameter& parameter, int dim, const at::Tensor& flat) {
  if (parameter.dims.empty()) return flat.view({});
  std::vector<int64_t> sizes{-1};
  int64_t rest = 1;
  for (int d = 0; d < static_cast<int>(parameter.dims.size()); ++d) {
    if (d == dim) continue;
    sizes.push_back(parameter.dims[d]);
    rest *= parameter.dims[d];
  }
  sizes[0] = flat.numel() / rest;
  return flat.view(sizes).movedim(0, dim);
}

at::Tensor ToRows(int dim, const at::Tensor& value) {
  return value.dim() == 0 ? value.view({1}) : value.movedim(dim, 0);
}

at::Tensor SlotView(const plan::ModelShape& shape, const GroupSlot& slot, const at::Tensor& flat) {
  return FromRows(shape.parameters[slot.slice.parameter], slot.slice.dim,
                  flat.narrow(0, slot.offset, slot.slice.elements));
}

}  // namespace tessera::worker

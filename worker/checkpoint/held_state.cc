#include "worker/checkpoint/held_state.h"

#include <algorithm>

namespace tessera::worker {
namespace {

// Elements [first, first + count) of a slice in row order. A whole slice is a piece in the parameter's own
// order.
Piece PieceOf(const plan::ModelShape& shape, const plan::Slice& slice, int64_t first, int64_t count) {
  Piece piece = Slice(shape, slice.parameter, slice.dim, slice.begin, slice.length);
  piece.first = first;
  piece.count = count;
  return piece;
}

}  // namespace

std::vector<HeldPiece> HeldPieces(const UnitStore& store) {
  const plan::ModelShape& shape = store.model().shape();
  std::vector<HeldPiece> held;
  for (const GroupState& state : store.held()) {
    const UnitGroup& group = store.groups()[state.group];
    for (const GroupSlot& slot : group.slots) {
      const int64_t low = std::max(slot.offset, state.begin),
                    high = std::min(slot.offset + slot.slice.elements, state.end);
      if (low >= high) continue;
      const bool whole = high - low == slot.slice.elements;
      const auto view = [&](const at::Tensor& flat) {
        return whole ? FromRows(shape.parameters[slot.slice.parameter], slot.slice.dim, flat) : flat;
      };
      HeldPiece piece;
      piece.unit = slot.slice.unit;
      piece.piece = PieceOf(shape, slot.slice, low - slot.offset, high - low);
      piece.owned = store.options().sharded || group.owner() == store.rank();
      piece.states.emplace_back("", view(store.ParameterRange(state, low, high)));
      for (size_t i = 0; i < state.moments.size(); ++i) {
        piece.states.emplace_back(store.options().moments[i],
                                  view(state.moments[i].slice(0, low - state.begin, high - state.begin)));
      }
      held.push_back(std::move(piece));
    }
  }
  // Buffers are whole on every rank.
  for (size_t i = shape.parameters.size(); i < store.weights().size(); ++i) {
    held.push_back(
        {0, WholeParameter(shape, static_cast<int>(i)), store.rank() == 0, {{"", store.weights()[i]}}});
  }
  std::stable_sort(held.begin(), held.end(),
                   [](const HeldPiece& a, const HeldPiece& b) { return a.unit < b.unit; });
  return held;
}

}  // namespace tessera::worker

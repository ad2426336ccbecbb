#include "worker/checkpoint/held_state.h"

#include <algorithm>

namespace tessera::worker {

std::vector<HeldPiece> HeldPieces(const UnitStore& store) {
  const plan::ModelShape& shape = store.model().shape();
  std::vector<HeldPiece> held;
  for (const UnitState& state : store.units()) {
    for (const UnitSlot& slot : state.layout.slots) {
      HeldPiece piece;
      piece.unit = state.unit;
      piece.piece = WholeParameter(shape, slot.parameter);
      piece.owned = store.plan().Holders(state.unit)[0] == store.rank();
      piece.states = {{"", state.parameters.narrow(0, slot.offset, slot.elements)},
                      {"exp_avg", state.exp_avg.narrow(0, slot.offset, slot.elements)},
                      {"exp_avg_sq", state.exp_avg_sq.narrow(0, slot.offset, slot.elements)}};
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

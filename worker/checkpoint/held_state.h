// What a checkpoint knows of a rank's memory, and all it knows: which pieces of which parameters the rank
// holds, and which of them it is the one to write.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "worker/checkpoint/piece.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

struct HeldPiece {
  int unit = 0;  // of the mask plan: pieces of a unit are written together
  Piece piece;
  bool owned = false;  // over all ranks, every element is owned exactly once
  // fp32 with as many elements as the piece, in its order, row-major: views of the store's memory. Contiguous
  // ones are written and filled without a copy. The weight is named "", the optimizer's "exp_avg" and so on.
  std::vector<std::pair<std::string, at::Tensor>> states;
};

// Ordered by unit. Valid as long as the store and its tensors are.
std::vector<HeldPiece> HeldPieces(const UnitStore& store);

}  // namespace tessera::worker

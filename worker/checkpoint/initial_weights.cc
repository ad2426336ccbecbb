#include "worker/checkpoint/initial_weights.h"

#include <torch/types.h>

#include <map>
#include <utility>

#include "base/status_macros.h"
#include "worker/checkpoint/held_state.h"
#include "worker/checkpoint/hf_weights.h"

namespace tessera::worker {

absl::Status LoadInitialWeights(const std::string& path, UnitStore* store) {
  const at::NoGradGuard no_grad;
  const plan::ModelShape& shape = store->model().shape();
  TESSERA_ASSIGN_OR_RETURN(const auto weights, HuggingFaceWeights::Open(path, shape));
  std::map<int, std::vector<std::pair<Piece, at::Tensor>>> wanted;  // by parameter
  for (const HeldPiece& held : HeldPieces(*store)) {
    wanted[held.piece.parameter].emplace_back(held.piece, held.states[0].second);
  }
  for (const auto& [parameter, pieces] : wanted) {
    TESSERA_ASSIGN_OR_RETURN(const at::Tensor value, weights->Read(parameter));  // one parameter at a time
    for (const auto& [piece, tensor] : pieces) {
      const at::Tensor part = at::empty({piece.count});
      CopyOverlap(shape, WholeParameter(shape, parameter), value.const_data_ptr<float>(), piece,
                  part.mutable_data_ptr<float>());
      tensor.copy_(part.view(tensor.sizes()));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker

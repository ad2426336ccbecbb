// The reducers of gradient dropping: in the hook of each gradient the selected elements go into the ring, the
// rest into the residual or nowhere, and the gradient is freed. What is kept is summed over the holders while
// backward goes on. There is no other gradient memory.
//
// The ring is one block of memory that is turned over once a step: it holds exactly the kept elements of a
// step, as clipping needs all of them before the first is used. Producers are the hooks, the last consumer is
// the optimizer. It cannot run over, as its parts are laid out before. Of a sharded store it holds this
// rank's shards' kept elements; what is kept of whole groups exists beside it from their first to their last
// hook.
//
// Lives on the trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "absl/status/statusor.h"
#include "worker/dropping/kept_pieces.h"
#include "worker/parallel/gradient_reducer.h"

namespace tessera::worker {

struct DroppingReducer {
  std::unique_ptr<GradientReducer> reducer;
  KeptPieces* pieces = nullptr;  // the reducer's
};

// step: finished so far. residual: KeptPieces::Create. The store keeps no gradients. All ranks have the same
// options. Errors: KeptPieces::Create's.
absl::StatusOr<DroppingReducer> MakeDroppingReducer(UnitStore* store, World* world,
                                                    const ReducerOptions& reducer,
                                                    const DroppingOptions& options, int64_t step,
                                                    at::Tensor residual = {});

}  // namespace tessera::worker

// Models that turn a text into vectors.
#pragma once

#include "worker/models/model.h"

namespace tessera::worker {

// A model that encodes texts is this as well.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  // Of the batch's inputs and padding: one vector a token, [B, T, D].
  virtual at::Tensor Encode(const Weights& weights, const Batch& batch, BlockRunner& runner) const = 0;
};

}  // namespace tessera::worker

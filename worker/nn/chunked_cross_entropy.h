// Cross-entropy of a linear head without the logits: tokens go through the head
// in chunks, and the gradients are computed while a chunk's logits are at hand.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::worker {

// Logits of at most this many bytes exist at once (never fewer than 64 tokens').
inline constexpr int64_t kLogitsChunkBytes = int64_t{32} << 20;

// SUM over targets != ignored of -log softmax(hidden @ weight^T + bias)[target] in nats, a
// scalar; bias undefined: none. hidden [N, D] and weight [V, D] fp32, targets [N] int64 in [0, V) or
// `ignored`.
//
// With grad mode on, forward computes the gradients too (for a gradient of 1 of the
// sum; backward multiplies them). That costs one buffer of the weight's size from forward to
// backward. It is no loss: backward starts right there, and every other way holds the
// same buffer at the same moment, while all activations live. Recomputing the logits in
// backward instead would add a third to the head's arithmetic.
at::Tensor ChunkedCrossEntropy(const at::Tensor& hidden_ND, const at::Tensor& weight_VD,
                               const at::Tensor& targets_N, int64_t ignored,
                               int64_t chunk_bytes = kLogitsChunkBytes, const at::Tensor& bias_V = {});

}  // namespace tessera::worker

// Causal grouped-query attention.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::worker {

// softmax(q k^T / sqrt(K)) v where position t sees 0..t. q [B, T, H, K], k and v [B, S, G, K] with
// S >= T: the queries are those of the last T positions. H is a multiple of G: query heads h*H/G..
// share key-value head h. -> [B, T, H, K], contiguous. Takes LibTorch's flash path: no [T, S] matrix
// exists, except a mask of bits when 1 < T < S.
at::Tensor CausalAttention(const at::Tensor& q_BTHK, const at::Tensor& k_BTGK, const at::Tensor& v_BTGK);

}  // namespace tessera::worker

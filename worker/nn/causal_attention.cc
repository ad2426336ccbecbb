#include "worker/nn/causal_attention.h"

#include <torch/types.h>

namespace tessera::worker {

at::Tensor CausalAttention(const at::Tensor& q_BTHK, const at::Tensor& k_BTGK, const at::Tensor& v_BTGK) {
  const bool grouped = q_BTHK.size(2) != k_BTGK.size(2);
  // Transposed views: the kernel reads strides and writes [B, T, H, K] again, so nothing is copied.
  const at::Tensor out = at::scaled_dot_product_attention(q_BTHK.transpose(1, 2), k_BTGK.transpose(1, 2),
                                                          v_BTGK.transpose(1, 2), {}, 0.0, true, {}, grouped);
  return out.transpose(1, 2);
}

}  // namespace tessera::worker

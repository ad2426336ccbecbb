#include "worker/nn/causal_attention.h"

#include <torch/types.h>

#include <optional>

namespace tessera::worker {

at::Tensor CausalAttention(const at::Tensor& q_BTHK, const at::Tensor& k_BTGK, const at::Tensor& v_BTGK) {
  const bool grouped = q_BTHK.size(2) != k_BTGK.size(2);
  const int64_t queries = q_BTHK.size(1), keys = k_BTGK.size(1);
  std::optional<at::Tensor> mask;  // the kernel's own causal order is for as many keys as queries
  if (keys != queries && queries != 1) {
    mask = at::ones({queries, keys}, q_BTHK.options().dtype(at::kBool)).tril(keys - queries);
  }
  // Transposed views: the kernel reads strides and writes [B, T, H, K] again, so nothing is copied.
  const at::Tensor out =
      at::scaled_dot_product_attention(q_BTHK.transpose(1, 2), k_BTGK.transpose(1, 2), v_BTGK.transpose(1, 2),
                                       mask, 0.0, keys == queries, {}, grouped);
  return out.transpose(1, 2);
}

}  // namespace tessera::worker

// The gated half of a LLaMA block's feed-forward network (Shazeer, 2020) with
// its output projection and residual.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::worker {

// residual + scale * (silu(gate) * up) @ down^T, [N, D].
// residual [N, D], gate and up [N, F], down [D, F], all fp32. The product
// silu(gate) * up is computed again in backward instead of being kept: that
// saves N * F numbers per block for one pass over them.
at::Tensor SwiGluDown(const at::Tensor& residual_ND, const at::Tensor& gate_NF, const at::Tensor& up_NF,
                      const at::Tensor& down_DF, double scale);

}  // namespace tessera::worker

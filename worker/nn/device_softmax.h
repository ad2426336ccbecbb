// The softmax loss of tensors that are not the host's: by a kernel that whoever has one sets, else by
// LibTorch's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::worker {

// logits [n, V] fp32 become d(sum of losses)/d(logits) in place if `gradient`, else anything; losses [n] are
// written. Rows whose target is `ignored` have loss 0 and gradient 0.
using SoftmaxLossKernel = void (*)(const at::Tensor& logits, const at::Tensor& targets, int64_t ignored,
                                   bool gradient, const at::Tensor& losses);

// Before training begins; null: LibTorch's operators.
void SetSoftmaxLossKernel(SoftmaxLossKernel kernel);

// Without waiting for the device. -> losses [n].
at::Tensor SoftmaxLossInPlace(const at::Tensor& logits, const at::Tensor& targets, int64_t ignored,
                              bool gradient);

}  // namespace tessera::worker

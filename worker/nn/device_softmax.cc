#include "worker/nn/device_softmax.h"

#include <torch/types.h>

#include <atomic>

namespace tessera::worker {
namespace {

std::atomic<SoftmaxLossKernel> kernel_in_use{nullptr};

}  // namespace

void SetSoftmaxLossKernel(SoftmaxLossKernel kernel) { kernel_in_use = kernel; }

at::Tensor SoftmaxLossInPlace(const at::Tensor& logits, const at::Tensor& targets, int64_t ignored,
                              bool gradient) {
  if (const SoftmaxLossKernel kernel = kernel_in_use; kernel != nullptr) {
    const at::Tensor losses = at::empty({logits.size(0)}, logits.options());
    kernel(logits, targets, ignored, gradient, losses);
    return losses;
  }
  const at::Tensor counted = targets.ne(ignored), index = targets.masked_fill(~counted, 0).unsqueeze(1);
  const at::Tensor normalizer = logits.logsumexp(1, /*keepdim=*/true);
  at::Tensor losses = (normalizer - logits.gather(1, index)).squeeze(1).masked_fill_(~counted, 0);
  if (gradient) {
    logits.sub_(normalizer).exp_();
    logits.scatter_add_(1, index, at::full_like(index, -1, logits.options()));
    logits.masked_fill_((~counted).unsqueeze(1), 0);
  }
  return losses;
}

}  // namespace tessera::worker

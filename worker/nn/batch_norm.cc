#include "worker/nn/batch_norm.h"

#include <torch/types.h>

namespace tessera::worker {

at::Tensor BatchNorm(const at::Tensor& x_BCHW, const BatchNormTensors& tensors, NormSource source,
                     double epsilon) {
  const auto norm = [&](const at::Tensor& mean, const at::Tensor& variance, bool training) {
    // A momentum of 1 puts the batch's own statistics in place of the running ones.
    return at::batch_norm(x_BCHW, tensors.weight, tensors.bias, mean, variance, training, /*momentum=*/1,
                          epsilon, /*cudnn_enabled=*/false);
  };
  switch (source) {
    case NormSource::kRunning:
      return norm(tensors.mean, tensors.variance, false);
    case NormSource::kBatch:
      return norm({}, {}, true);
    case NormSource::kEstimate:
      break;
  }
  // Zeros: what was there before is multiplied by 0, which leaves a NaN a NaN.
  const at::Tensor mean = at::zeros_like(tensors.mean), variance = at::zeros_like(tensors.variance);
  at::Tensor y = norm(mean, variance, true);
  const at::NoGradGuard no_grad;
  tensors.mean.add_(mean);
  tensors.variance.add_(variance);
  return y;
}

}  // namespace tessera::worker

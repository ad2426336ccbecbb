// Batch normalisation (Ioffe and Szegedy, 2015) that never changes its running statistics while training.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::worker {

// Where batch norm takes the mean and the variance from.
enum class NormSource : uint8_t {
  kRunning,   // the running statistics
  kBatch,     // the batch itself; nothing is remembered, so that a layer may be run twice
  kEstimate,  // the batch itself, whose mean and (unbiased) variance are added to the running ones
};

struct BatchNormTensors {
  const at::Tensor& weight;  // [C]
  const at::Tensor& bias;    // [C]
  const at::Tensor& mean;    // [C], running
  const at::Tensor& variance;
};

// y = (x - mean) / sqrt(variance + epsilon) * weight + bias for each channel. x [B, C, H, W] fp32.
at::Tensor BatchNorm(const at::Tensor& x_BCHW, const BatchNormTensors& tensors, NormSource source,
                     double epsilon = 1e-5);

}  // namespace tessera::worker

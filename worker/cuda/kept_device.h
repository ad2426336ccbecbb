// Gradient dropping on the device in use: kernels of launch.h over memory of LibTorch's allocator.
#pragma once

#include <memory>

#include "worker/dropping/kept_operations.h"

namespace tessera::cuda {

// On the current stream of the thread that calls. Throws c10::Error as LibTorch does.
std::unique_ptr<worker::KeptDevice> MakeCudaKeptDevice();

// worker::SetSoftmaxLossKernel's.
void SoftmaxLossOnDevice(const at::Tensor& logits, const at::Tensor& targets, int64_t ignored, bool gradient,
                         const at::Tensor& losses);

}  // namespace tessera::cuda

// Root-mean-square normalisation (Zhang and Sennrich, 2019).
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::worker {

// y = x / sqrt(mean(x^2) + epsilon) * weight over the last dimension.
// x [..., D] and weight [D] fp32, contiguous. Keeps x and one number per row for backward.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace tessera::worker

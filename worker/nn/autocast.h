// Computation in bf16: products of matrices, convolutions and attention take and give bf16; sums over a
// residual stream, norms, rotations and losses stay in fp32, as do weights and their gradients (torch's
// autocast).
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::worker {

// While it lives, on this thread. `on` false: fp32, also within one that is on.
class Autocast {
 public:
  explicit Autocast(bool on);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  static bool Enabled();  // on this thread

 private:
  bool before_;
};

// residual + scale * a * weight^T, [N, D]. In fp32 the residual rides in the product: no pass of its own.
at::Tensor AddProduct(const at::Tensor& residual_ND, const at::Tensor& a_NK, const at::Tensor& weight_DK,
                      double scale);

}  // namespace tessera::worker

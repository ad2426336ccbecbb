#include "worker/nn/autocast.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

namespace tessera::worker {

// Casts of weights are not kept: with sharding a weight's memory is filled anew within a pass.
Autocast::Autocast(bool on) : before_(Enabled()) {
  if (on) {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(false);
  }
  at::autocast::set_autocast_enabled(at::kCPU, on);
}

Autocast::~Autocast() { at::autocast::set_autocast_enabled(at::kCPU, before_); }

bool Autocast::Enabled() { return at::autocast::is_autocast_enabled(at::kCPU); }

at::Tensor AddProduct(const at::Tensor& residual_ND, const at::Tensor& a_NK, const at::Tensor& weight_DK,
                      double scale) {
  if (!Autocast::Enabled()) return at::addmm(residual_ND, a_NK, weight_DK.t(), 1, scale);
  return at::add(residual_ND, at::mm(a_NK, weight_DK.t()), scale);
}

}  // namespace tessera::worker

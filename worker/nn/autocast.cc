#include "worker/nn/autocast.h"

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

}  // namespace tessera::worker

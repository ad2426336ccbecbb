#include "worker/nn/autocast.h"

#include <ATen/autocast_mode.h>

namespace tessera::worker {
namespace {

// Wherever the tensors are.
void Set(bool on) {
  for (const auto device : {at::kCPU, at::kCUDA}) at::autocast::set_autocast_enabled(device, on);
}

}  // namespace

// Casts of weights are not kept: with sharding a weight's memory is filled anew within a pass.
Autocast::Autocast(bool on) : before_(Enabled()) {
  if (on) {
    for (const auto device : {at::kCPU, at::kCUDA}) at::autocast::set_autocast_dtype(device, at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(false);
  }
  Set(on);
}

Autocast::~Autocast() { Set(before_); }

bool Autocast::Enabled() { return at::autocast::is_autocast_enabled(at::kCPU); }

}  // namespace tessera::worker

// Layers have loops of ours for the host, and LibTorch's operators for tensors of any device.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::worker {

inline thread_local bool without_host_loops = false;

inline bool HasHostLoops(const at::Tensor& tensor) { return tensor.is_cpu() && !without_host_loops; }

// While it lives this thread treats the host's tensors as it would a device's: for tests.
class WithoutHostLoops {
 public:
  WithoutHostLoops() { without_host_loops = true; }
  ~WithoutHostLoops() { without_host_loops = false; }
  WithoutHostLoops(const WithoutHostLoops&) = delete;
  WithoutHostLoops& operator=(const WithoutHostLoops&) = delete;
};

}  // namespace tessera::worker

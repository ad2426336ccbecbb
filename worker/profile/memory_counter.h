// Counts the bytes of live CPU tensors on all threads, by wrapping the allocator.
#pragma once

#include <cstdint>

namespace tessera::worker {

// Wraps LibTorch's CPU allocator once per process; call before the first tensor.
void InstallMemoryCounter();

int64_t LiveTensorBytes();
int64_t PeakTensorBytes();     // since the start or the last reset
void ResetPeakTensorBytes();   // peak := live
int64_t ResidentBytes();       // of the process, from /proc/self/statm

}  // namespace tessera::worker

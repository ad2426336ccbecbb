// Counts the bytes of live CPU tensors on all threads, by wrapping the allocator.
// Figures are the bytes asked for, without the allocator's rounding: the same
// program gives the same figures on every machine.
#pragma once

#include <cstdint>

namespace tessera::worker {

// Wraps LibTorch's CPU allocator once per process; call before the first tensor.
// Tensors made earlier, and memory mapped from files, are not counted.
void InstallMemoryCounter();

int64_t LiveTensorBytes();
int64_t PeakTensorBytes();    // since the start or the last reset
void ResetPeakTensorBytes();  // peak := live
// From now on an allocation that would bring the live bytes above `bytes` fails, as on a machine that has no
// more. 0: no limit.
void LimitTensorBytes(int64_t bytes);
int64_t ResidentBytes();  // of the process, from /proc/self/statm; 0 if unreadable

}  // namespace tessera::worker

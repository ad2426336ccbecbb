// What a worker's process takes of its machine beside the counted tensors.
#pragma once

#include <cstdint>

namespace tessera::plan {

// The stream to the scheduler, which is not there where a process is measured: bytes.
inline constexpr int64_t kClientBytes = int64_t{6} << 20;

// Bytes that the heap holds beside `tensors` counted ones at their peak. slack: the measured ratio, of one
// block's steps.
int64_t HeapBeside(double slack, int64_t tensors);

// The most bytes of tensors that take, with what the heap holds beside them, at most `bytes`.
int64_t TensorsIn(double slack, int64_t bytes);

}  // namespace tessera::plan

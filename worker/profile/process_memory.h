// What a process takes of the machine beside its counted tensors.
#pragma once

#include "absl/functional/function_ref.h"
#include "scheduler/plan/model_shape.h"

namespace tessera::worker {

// Of this process: resident bytes as it holds no tensor, and by how much they grow beyond the counted ones
// while `step` runs again and again, which makes and frees tensors as a step of training does; the weights
// stay. The first time fills the libraries' lazy buffers. The memory counter is installed; nobody else makes
// tensors meanwhile. All 0 where /proc does not tell.
plan::ProcessMemory MeasureProcess(absl::FunctionRef<void()> step);

}  // namespace tessera::worker

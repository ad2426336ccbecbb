// How many communicators of NCCL a worker may make.
#pragma once

namespace tessera::plan {

// Beside the one of all workers; each takes some hundred megabytes of its GPU.
inline constexpr int kMostNcclCommunicators = 32;

}  // namespace tessera::plan

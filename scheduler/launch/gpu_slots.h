// Which of this machine's GPUs no worker has. The process table is the record: a worker's environment says
// which it was given, so that a GPU has one owner also after the scheduler was killed, with workers that
// outlive their job, and between two schedulers of one user.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera::scheduler {

// Holds the names in a worker's environment, with commas between, as CUDA_VISIBLE_DEVICES does.
inline constexpr char kGpusVariable[] = "TESSERA_GPUS";

// The first `count` of `gpus` (names as of CUDA_VISIBLE_DEVICES) that no process has which may be seen.
// Unavailable: there are not so many; names who has the others.
absl::StatusOr<std::vector<std::string>> FreeGpus(absl::Span<const std::string> gpus, int count);

}  // namespace tessera::scheduler

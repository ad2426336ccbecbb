// What ranks tell each other around a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"

namespace tessera::worker {

// All ranks call it together. Ok when all are; otherwise every rank gets an error that says which rank
// failed and why, with the code of the first one. Unavailable means a lost peer, nothing else.
absl::Status ShareVerdict(const absl::Status& own, Communicator& all);

// By rank.
absl::StatusOr<std::vector<std::string>> GatherTexts(const std::string& own, Communicator& all);

}  // namespace tessera::worker

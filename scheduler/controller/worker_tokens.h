// The secrets by which workers of an epoch are known. Kept only in files that
// their owner alone can read; never logged.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::scheduler {

// <run_directory>/worker-token-epoch-<e>.
std::string WorkerTokenPath(const std::string& run_directory, int epoch);
// 32 random bytes in hexadecimal, written with mode 0600; the token that is there
// already is kept, so that workers of a launch that is repeated stay welcome.
absl::Status EnsureWorkerToken(const std::string& run_directory, int epoch);
// NotFound when the epoch has none.
absl::StatusOr<std::string> ReadWorkerToken(const std::string& run_directory, int epoch);
void RemoveWorkerToken(const std::string& run_directory, int epoch);

}  // namespace tessera::scheduler

#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tessera::scheduler {

// The worker program: `configured` if not empty, else `tessera-worker` beside the
// running program. NotFound or PermissionDenied name the path and what to set.
absl::StatusOr<std::string> FindWorkerProgram(const std::string& configured);

}  // namespace tessera::scheduler

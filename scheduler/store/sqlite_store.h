#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/store/job_store.h"

namespace tessera::scheduler {

// Jobs in one file (mode 0600), write-ahead logged: what a call returned OK for survives
// a killed process. One process at a time. FailedPrecondition (in use, newer schema, no
// access) and DataLoss (damaged) name the file.
absl::StatusOr<std::unique_ptr<JobStore>> OpenSqliteStore(const std::string& path);

}  // namespace tessera::scheduler

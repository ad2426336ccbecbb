// The files of a deleted job: its logs, metrics, model and the checkpoints that lie with them.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace tessera::scheduler {

// A run directory is marked before its job leaves the store, so that a scheduler that dies in between
// neither leaves files behind nor deletes those of a job that is still there.
absl::Status MarkDeleted(const std::string& run_directory);
void UnmarkDeleted(const std::string& run_directory);
// With all that is in it; links are removed, not followed. What can't be removed is logged.
void RemoveRunDirectory(const std::string& run_directory);

// Marked run directories below `jobs_directory`: removed, unless `exists` knows their job's uid.
void FinishDeletions(const std::string& jobs_directory,
                     const std::function<bool(const std::string& uid)>& exists);

}  // namespace tessera::scheduler

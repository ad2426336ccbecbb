// The files of a deleted job: its logs, metrics, model and the checkpoints that lie with them; and the
// folders of a job beside its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tessera/v1/job.pb.h"

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

// The folders in which the files lie that a job reads, sorted, each once; of patterns what is before the
// first wildcard. Looks at the disk: a name of nothing counts as that of a file.
std::vector<std::string> FoldersRead(const v1::TrainingJobSpec& spec);

}  // namespace tessera::scheduler

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/v1/job.pb.h"

namespace tessera::scheduler {

struct FoundCheckpoint {
  int64_t step = 0;
  std::string path;
};

// Where a job's workers write: in a folder of the user's each job has its own, so that neither an earlier
// job's checkpoints nor those of one that runs beside it are resumed from or pruned.
std::string CheckpointDirectory(const v1::TrainingJob& job, const std::string& run_directory);

// Complete checkpoints of a folder, by step.
std::vector<FoundCheckpoint> FindCheckpoints(const std::string& directory);

// The complete checkpoint of the largest step in a folder: `step-<digits>` with a
// manifest.json. Others, unfinished ones among them, are passed over.
std::optional<FoundCheckpoint> NewestCheckpoint(const std::string& directory);

}  // namespace tessera::scheduler

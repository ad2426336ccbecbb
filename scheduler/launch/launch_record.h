// The local launcher's record of an epoch's processes: JSON, stored with the job
// and beside its logs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/launch/process_identity.h"

namespace tessera::scheduler {

struct LaunchRecord {
  std::string job_uid;
  int epoch = 0;
  int world_size = 0;
  std::string node;
  std::string boot_id;
  std::vector<ProcessIdentity> workers;  // by rank; fewer than world_size while starting
};

std::string Encode(const LaunchRecord& record);
absl::StatusOr<LaunchRecord> DecodeLaunchRecord(const std::string& text);

// <run_directory>/logs/epoch-<e>-processes.json, replaced atomically.
absl::Status Save(const std::string& run_directory, const LaunchRecord& record);
// NotFound when there is none.
absl::StatusOr<LaunchRecord> LoadLaunchRecord(const std::string& run_directory, int epoch);

}  // namespace tessera::scheduler

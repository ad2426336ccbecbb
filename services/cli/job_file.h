// From a job file and the command line's changes to a job message. Reads the file
// and nothing else; no defaults are applied.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tessera/v1/job.pb.h"

namespace tessera::cli {

// "spec.schedule.steps=200": the field by its path (camelCase or snake_case), the value as
// YAML; "null" takes the field out. `env` takes any name behind it.
absl::Status ApplySet(const std::string& assignment, nlohmann::ordered_json* job);

struct JobFileOptions {
  std::string working_directory;  // relative paths in `sets` start here
  std::vector<std::string> sets;  // see ApplySet, in order
};

// Relative paths inside the file start at the file's own folder. Errors carry the
// violations of the file or of the assignment, see spec::ViolationsFrom.
absl::StatusOr<v1::TrainingJob> LoadJobFile(const std::string& path, const JobFileOptions& options);

// The job with the assignments made, in order. Errors as above.
absl::StatusOr<v1::TrainingJob> ChangeJob(const v1::TrainingJob& job, const JobFileOptions& options);

// What `wanted` asks for and `existing` does not have, as "spec.schedule.steps: 300, asked for
// 400". Fields that `wanted` leaves unset are not compared.
std::vector<std::string> Differences(const v1::TrainingJob& wanted, const v1::TrainingJob& existing);

}  // namespace tessera::cli

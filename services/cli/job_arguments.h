// The options that every command with a job file takes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/statusor.h"
#include "services/cli/session.h"

namespace tessera::cli {

struct JobArguments {
  std::string file;
  std::string name;
  std::optional<int> workers;
  std::optional<int64_t> steps;
  std::vector<std::string> sets;
};

std::shared_ptr<JobArguments> AddJobArguments(CLI::App* command);

// The job as asked for, before defaults; found valid with them. A job without a name
// is called like its file. Errors carry all violations.
absl::StatusOr<v1::TrainingJob> LoadJob(const Session& session, const JobArguments& arguments);

}  // namespace tessera::cli

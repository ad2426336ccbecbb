// The data that a job names.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "tessera/v1/job.pb.h"
#include "worker/data/dataset.h"

namespace tessera::worker {

struct JobData {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> validation;  // null: none
};

// Opened and checked against what the model reads. The error names spec.data.train or .validation.
absl::StatusOr<JobData> OpenJobData(const v1::TrainingJobSpec& spec, const ModelInput& input);

}  // namespace tessera::worker

// From what a client sent to the job that is handed to the controller.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tessera/v1/api.pb.h"

namespace tessera::services {

// The job of `request` with its namespace, a name, defaults, plain paths for file:/// ones, and no
// output-only fields;
// valid in itself. A missing name is made from the model and a short suffix: of
// request_id when there is one, so that a repeated call names the same job, else random.
absl::StatusOr<v1::TrainingJob> ResolveJob(const v1::CreateTrainingJobRequest& request);

}  // namespace tessera::services

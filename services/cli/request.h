// The calls that several commands make.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/cli/client.h"
#include "services/cli/interrupts.h"
#include "services/cli/session.h"

namespace tessera::cli {

absl::StatusOr<v1::TrainingJob> GetJob(Client& client, const std::string& ns, const std::string& name);

// Repeats itself once if the connection breaks; the service creates the job once all the same.
absl::StatusOr<v1::CreateTrainingJobResponse> CreateJob(Client& client, const v1::TrainingJob& job,
                                                        bool validate_only);
// The same for a job that is to be stored, given up at an interrupt: then it is not stored, or
// cancelled, and the answer is Cancelled.
absl::StatusOr<v1::CreateTrainingJobResponse> CreateJobUnlessInterrupted(Client& client,
                                                                         const v1::TrainingJob& job,
                                                                         Interrupts* interrupts);

absl::StatusOr<v1::TrainingJob> ResumeJob(Client& client, const v1::TrainingJob& job);

// Deletes `job`, ending its workers first, and returns when its name is free.
absl::Status DeleteJobAndWait(const Session& session, Client& client, const v1::TrainingJob& job);

}  // namespace tessera::cli

// What `train` and `get` say of a job that has ended: report, sample, where to look again.
#pragma once

#include "services/cli/session.h"

namespace tessera::cli {

// Reads the newest plan from the service; leaves out what cannot be had.
void PrintReport(const Session& session, Client& client, const v1::TrainingJob& job);
// Text from the exported model, written by tessera-worker.
void PrintSample(const Session& session, const v1::TrainingJob& job);
void PrintSeeAgain(const Session& session, const Client& client, const v1::TrainingJob& job);

}  // namespace tessera::cli

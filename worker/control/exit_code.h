// Exit codes of tessera-worker under a launcher. The scheduler is told the same
// in Finished; the code is what remains when that could not be delivered.
#pragma once

#include "absl/status/status.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::worker {

enum ExitCode : int {
  kExitCompleted = 0,
  kExitUsage = 2,      // bad command line
  kExitInvalid = 3,    // will fail again whatever is retried
  kExitStopped = 10,   // as asked
  kExitPeerLost = 11,  // a peer or the scheduler is gone: infrastructure
  kExitOutOfMemory = 12,
  kExitApplication = 13,  // an error of the job itself
};

v1::WorkerOutcome OutcomeOf(const absl::Status& status);  // of an error
ExitCode ExitCodeOf(v1::WorkerOutcome outcome);

}  // namespace tessera::worker

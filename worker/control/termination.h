// SIGTERM of a worker.
#pragma once

#include "worker/train/trainer.h"

namespace tessera::worker {

// The first SIGTERM asks for a checkpoint and the end after the step under way, whatever the scheduler
// has asked for before; the second ends the process at once. `signals` outlives the process's use of
// them. Once per process.
void InstallTerminationHandler(TrainerSignals* signals);

}  // namespace tessera::worker

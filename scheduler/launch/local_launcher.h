// Workers as processes of this machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "scheduler/launch/launcher.h"

namespace tessera::scheduler {

struct LocalLauncherOptions {
  std::string worker_program;          // "": see worker_program.h
  std::vector<std::string> arguments;  // after the program
  std::string node = "local";
  std::vector<std::string> gpus;  // that jobs may have, as CUDA_VISIBLE_DEVICES names them; empty: unknown
};

// Each worker leads a session of its own: it outlives terminal and daemon and is found
// again by the record, never by pid alone. Its environment is the daemon's, the job's, and last
//   TESSERA_SCHEDULER, TESSERA_JOB (uid), TESSERA_EPOCH, TESSERA_RANK, TESSERA_TOKEN_FILE
// with OMP_NUM_THREADS and MKL_NUM_THREADS (which the job may override) set to cpu_threads. Where the job
// asks for GPUs, CUDA_VISIBLE_DEVICES and TESSERA_GPUS name the job's: as many as it has workers, or all, and
// no other worker's (gpu_slots.h). Unavailable: there are not so many free. Observe reaps children and, when
// a worker has ended, what it started. Stop asks the worker itself with SIGTERM; with `kill` its whole group
// gets SIGKILL. Thread-safe.
std::unique_ptr<Launcher> MakeLocalLauncher(const LocalLauncherOptions& options);

}  // namespace tessera::scheduler

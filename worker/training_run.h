// A worker's whole life under a launcher: from its environment to its exit code.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/control/exit_code.h"
#include "worker/train/trainer.h"

namespace tessera::worker {

// What a launcher passes.
struct LaunchEnvironment {
  std::string scheduler;     // TESSERA_SCHEDULER: host:port, https://host:port or file:<endpoint.json>
  std::string job_uid;       // TESSERA_JOB
  int epoch = 0;             // TESSERA_EPOCH
  int rank = 0;              // TESSERA_RANK
  std::string token_file;    // TESSERA_TOKEN_FILE, optional
  std::string ca_file;       // TESSERA_CA_FILE: authorities for a scheduler with https
  std::string node;          // TESSERA_NODE, optional: the host's name
  std::string bind_address;  // TESSERA_BIND_ADDRESS, optional: where peers reach this worker; default
                             // loopback with a scheduler on loopback, else what the host's name resolves to
  std::string metrics_address = "127.0.0.1:0";      // TESSERA_METRICS_ADDRESS: host:port of /metrics; 0: any
  absl::Duration confirmation = absl::Seconds(15);  // how long the scheduler's word on the end is waited for
};

using Variable = std::function<const char*(const char* name)>;  // null: not set

// InvalidArgument names the variable.
absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(const Variable& variable);

// Connects, trains, reports the end. `signals` may be set from a signal handler.
ExitCode RunUnderLauncher(const LaunchEnvironment& environment, TrainerSignals* signals);

}  // namespace tessera::worker

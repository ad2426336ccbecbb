// The rendezvous store of a worker group, held by the scheduler (WorkerService.Store).
// Torch-free. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "worker/comm/rendezvous_client.h"

namespace tessera::worker {

struct SchedulerRendezvousOptions {
  std::string scheduler;  // see ControlOptions
  std::string token_file;
  std::string ca_file;
  std::string job_uid;
  int epoch = 0;
  absl::Duration call_timeout = absl::Seconds(30);  // of calls that do not wait for a key
};

std::unique_ptr<RendezvousClient> MakeSchedulerRendezvous(const SchedulerRendezvousOptions& options);

}  // namespace tessera::worker

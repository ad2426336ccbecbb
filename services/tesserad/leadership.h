// Replicas of tesserad: one works, the others stand by.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/kube/api_client.h"
#include "scheduler/kube/leader_lease.h"
#include "services/tesserad/options.h"
#include "services/tesserad/stop_signal.h"

namespace tessera::services {

class Leadership {
 public:
  // Null where `options` name no lease. FailedPrecondition says what is missing to reach the cluster.
  static absl::StatusOr<std::unique_ptr<Leadership>> Open(const DaemonOptions& options);

  // Until this replica leads, answers the probes at the TLS REST port and all else there with 503. False: a
  // signal came before. A leader that loses its lease ends at once, without a word to its workers, which go
  // on; another replica finds them.
  absl::StatusOr<bool> Await(const DaemonOptions& options, StopSignal* stop);

  // Sends clients of the Service here: its selector wants the label tessera.dev/leads=<lease> of a pod, which
  // this one gets and all others lose. To be called when the doors are open.
  absl::Status Announce();

 private:
  Leadership(std::unique_ptr<scheduler::ApiClient> client, std::string ns, const DaemonOptions& options);
  absl::Status SetLabel(const std::string& pod, bool leads);

  const std::unique_ptr<scheduler::ApiClient> client_;
  const std::string pods_;  // path of the collection
  const std::string lease_name_;
  const std::string pod_;
  scheduler::LeaderLease lease_;
};

}  // namespace tessera::services

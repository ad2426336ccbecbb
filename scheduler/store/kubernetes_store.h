#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/kube/api_client.h"
#include "scheduler/store/job_store.h"

namespace tessera::scheduler {

// Jobs in TrainingRecord resources of a namespace (kubernetes_records.h): what a call returned OK for is in
// etcd. Everything is read once, when it is opened, and kept in memory too; a write is one request for a
// change of a job and two for its creation, and waits for the answer.
//
// One process at a time: see leader_lease.h. What another one wrote nevertheless is not overwritten: Update
// returns Aborted and the store has the newer record from then on. After a request whose answer was lost the
// record is read again before it is written.
//
// `client` should be nobody else's: writes must not queue behind other requests. Unavailable: the API server
// can't be reached. NotFound: it does not know the resource. DataLoss names an object that can't be read.
absl::StatusOr<std::unique_ptr<JobStore>> OpenKubernetesStore(std::unique_ptr<ApiClient> client,
                                                              const std::string& ns);

}  // namespace tessera::scheduler

// c10d's Store interface over a RendezvousClient. Included in this folder only.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/time/time.h"
#include "worker/comm/rendezvous_client.h"

namespace tessera::worker {

// Throws c10::Error when the client reports an error, as c10d's own stores do. `client` outlives it.
c10::intrusive_ptr<c10d::Store> MakeSchedulerStore(RendezvousClient* client, absl::Duration timeout);

}  // namespace tessera::worker

// A World over c10d's Gloo backend.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"
#include "worker/comm/rendezvous_client.h"

namespace tessera::worker {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  // Address or host name to listen on, reachable by all peers; empty: what this machine's host name
  // resolves to.
  std::string bind_address = "127.0.0.1";
  absl::Duration rendezvous_timeout = absl::Seconds(120);
  absl::Duration collective_timeout = absl::Seconds(300);  // a peer silent for longer counts as lost
  int threads = 2;                                         // per group, carrying collectives out
};

// Waits for all ranks. `rendezvous` outlives the world. DeadlineExceeded or Unavailable says what
// did not come. size 1 gives the loopback world.
absl::StatusOr<std::unique_ptr<World>> MakeGlooWorld(const GlooOptions& options,
                                                     RendezvousClient* rendezvous);

// The same with the ranks of one machine meeting over a file that does not exist yet.
absl::StatusOr<std::unique_ptr<World>> MakeGlooWorldOverFile(const GlooOptions& options,
                                                             const std::string& path);

}  // namespace tessera::worker

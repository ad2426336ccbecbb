// Runs N ranks as threads of this process, connected by Gloo over loopback.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "tests/status.h"
#include "worker/comm/gloo_world.h"

namespace tessera::worker {

// ranks == 1 gives the loopback world. `body` runs once per rank; a rank's failure to connect fails the test.
inline void RunRanks(int ranks, const std::function<void(int rank, World& world)>& body) {
  MemoryRendezvous rendezvous;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      GlooOptions options;
      options.rank = rank;
      options.size = ranks;
      options.collective_timeout = absl::Seconds(60);
      auto world = MakeGlooWorld(options, &rendezvous);
      ASSERT_OK(world);
      body(rank, **world);
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace tessera::worker

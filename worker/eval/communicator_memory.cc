#include "worker/eval/communicator_memory.h"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "worker/comm/gloo_world.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

constexpr int kRanks = 2;

// Meets the other rank on both channels, so that there are two communicators a rank.
std::unique_ptr<World> Connect(int rank, RendezvousClient* rendezvous) {
  auto world =
      MakeGlooWorld({.rank = rank, .size = kRanks, .rendezvous_timeout = absl::Seconds(10)}, rendezvous);
  if (!world.ok()) return nullptr;
  const std::array<int, kRanks> ranks{0, 1};
  const auto weights = (*world)->Group(ranks, Channel::kWeights);
  if (!weights.ok()) return nullptr;
  for (Communicator* communicator : {&(*world)->all(), *weights}) {
    if (!communicator->AllReduceSum(at::ones({256}))->Wait().ok()) return nullptr;
  }
  return *std::move(world);
}

// Bytes for all ranks and channels.
int64_t GrowthWhileConnected() {
  const int64_t before = ResidentBytes();
  MemoryRendezvous rendezvous;
  std::array<std::unique_ptr<World>, kRanks> worlds;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] { worlds[rank] = Connect(rank, &rendezvous); });
    }
  }
  const bool connected =
      std::all_of(worlds.begin(), worlds.end(), [](const auto& w) { return w != nullptr; });
  return connected ? std::max<int64_t>(0, ResidentBytes() - before) : 0;
}

}  // namespace

int64_t MeasureCommunicator() {
  GrowthWhileConnected();  // once more below: the first one also loads what all have in common
  return GrowthWhileConnected() / (2 * kRanks);
}

}  // namespace tessera::worker

#include "worker/comm/communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/status.h"
#include "tests/worker/parallel/rank_threads.h"
#include "worker/comm/catch_torch.h"
#include "worker/comm/gloo_world.h"

namespace tessera::worker {
namespace {

TEST(CommunicatorTest, AllReduceSumsAndCountsTheRingsBytes) {
  RunRanks(3, [](int rank, World& world) {
    const at::Tensor t = at::full({900}, static_cast<float>(rank + 1));
    ASSERT_OK(world.all().AllReduceSum(t)->Wait());
    EXPECT_TRUE(at::equal(t, at::full({900}, 6.0f)));
    EXPECT_EQ(world.all().bytes_sent(), 2 * 2 * 900 * 4 / 3);
  });
}

// Sums of bf16 are rounded at every hop: all members must end with the same ones, whatever else is under way
// on the group and whoever comes late. To look for rare faults: --gtest_repeat.
TEST(CommunicatorTest, EveryMemberGetsTheSameBits) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    constexpr int kRounds = 100;
    const std::vector<int64_t> sizes{1, 5, 19, 304, 627};
    std::vector<std::vector<at::Tensor>> sums(3);
    RunRanks(3, [&](int rank, World& world) {
      for (int round = 0; round < kRounds; ++round) {
        std::vector<at::Tensor> tensors;
        std::vector<std::unique_ptr<Work>> works;
        const at::Tensor counts = at::zeros({3}, at::kDouble);
        works.push_back(world.all().StartAllGather(at::full({1}, rank + 0.5, at::kDouble), counts));
        for (int64_t size : sizes) {
          const at::Tensor value = at::sin(at::arange(size, at::kFloat) * (rank + 1) + round).to(type);
          works.push_back(world.all().AllReduceSum(value));
          tensors.push_back(value);
        }
        for (const auto& work : works) ASSERT_OK(work->Wait());
        EXPECT_TRUE(at::equal(counts, at::tensor({0.5, 1.5, 2.5}, at::kDouble)));
        for (const at::Tensor& value : tensors) sums[rank].push_back(value.to(at::kFloat));
      }
    });
    for (size_t i = 0; i < sums[0].size(); ++i) {
      ASSERT_TRUE(at::equal(sums[0][i], sums[1][i]) && at::equal(sums[0][i], sums[2][i])) << type << " " << i;
    }
  }
}

TEST(CommunicatorTest, AllReduceOfASliceLeavesItsNeighboursAlone) {
  RunRanks(2, [](int rank, World& world) {
    const at::Tensor t = at::full({10}, static_cast<float>(rank));
    ASSERT_OK(world.all().AllReduceSum(t.narrow(0, 3, 4))->Wait());
    EXPECT_EQ(t[2].item<float>(), rank);
    EXPECT_EQ(t[3].item<float>(), 1);
    EXPECT_EQ(t[7].item<float>(), rank);
  });
}

TEST(CommunicatorTest, AllGatherKeepsRankOrder) {
  RunRanks(3, [](int rank, World& world) {
    at::Tensor out = at::empty({6}, at::kDouble);
    ASSERT_OK(world.all().AllGather(at::full({2}, rank, at::kDouble), out));
    EXPECT_TRUE(at::equal(out, at::tensor({0., 0., 1., 1., 2., 2.}, at::kDouble)));
  });
}

TEST(CommunicatorTest, ReduceScatterGivesEachRankItsPartOfTheSum) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    RunRanks(3, [&](int rank, World& world) {
      const at::Tensor in = (at::arange(12) * (rank + 1)).to(type);
      const at::Tensor out = at::empty({4}, type);
      ASSERT_OK(world.all().ReduceScatterSum(in, out)->Wait());
      EXPECT_TRUE(at::equal(out, ((at::arange(4) + 4 * rank) * 6).to(type)));
      EXPECT_EQ(world.all().bytes_sent(), 2 * static_cast<int64_t>(in.nbytes()) / 3);
    });
  }
}

TEST(CommunicatorTest, ExchangeGivesEachMemberWhatIsForIt) {
  RunRanks(3, [](int rank, World& world) {
    // Rank r sends member i i + r elements of value 10 r + i: the first nothing to itself.
    std::vector<int64_t> to, from;
    std::vector<at::Tensor> in, out;
    for (int i = 0; i < 3; ++i) {
      to.push_back(i + rank);
      from.push_back(rank + i);
      in.push_back(at::full({i + rank}, static_cast<float>(10 * rank + i)));
      out.push_back(at::full({rank + i}, static_cast<float>(10 * i + rank)));
    }
    const at::Tensor expected = at::cat(out), received = at::empty_like(expected);
    ASSERT_OK(world.all().StartExchange(at::cat(in), to, received, from)->Wait());
    EXPECT_TRUE(at::equal(received, expected));
    EXPECT_EQ(world.all().bytes_sent(), (3 + 3 * rank - 2 * rank) * 4);
    // Nobody need have anything.
    const at::Tensor none = at::empty({0});
    EXPECT_OK(world.all().StartExchange(none, {0, 0, 0}, at::empty({0}), {0, 0, 0})->Wait());
  });
}

TEST(CommunicatorTest, ChannelsOfOneGroupDoNotWaitForEachOther) {
  RunRanks(2, [](int rank, World& world) {
    auto weights = world.Group({0, 1}, Channel::kWeights);
    ASSERT_OK(weights);
    const at::Tensor a = at::full({2}, 1.0f), b = at::full({2}, static_cast<float>(rank));
    // The ranks use the channels in opposite orders.
    auto first = rank == 0 ? world.all().AllReduceSum(a) : (*weights)->StartBroadcast(b, 0);
    EXPECT_OK((rank == 0 ? (*weights)->StartBroadcast(b, 0) : world.all().AllReduceSum(a))->Wait());
    EXPECT_OK(first->Wait());
    EXPECT_EQ(a[0].item<float>(), 2);
    EXPECT_EQ(b[1].item<float>(), 0);
  });
}

TEST(CommunicatorTest, SubgroupsReduceAmongTheirMembersOnly) {
  RunRanks(3, [](int rank, World& world) {
    // Every rank asks in the same order for the groups it is in.
    for (const std::vector<int>& ranks : {std::vector<int>{0, 1}, {1, 2}, {0, 2}}) {
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
      auto group = world.Group(ranks);
      ASSERT_OK(group);
      const at::Tensor t = at::full({1}, static_cast<float>(rank));
      ASSERT_OK((*group)->AllReduceSum(t)->Wait());
      EXPECT_EQ(t.item<float>(), ranks[0] + ranks[1]);
    }
    auto alone = world.Group({rank});
    ASSERT_OK(alone);
    EXPECT_EQ((*alone)->size(), 1);
    auto everyone = world.Group({0, 1, 2});
    ASSERT_OK(everyone);
    EXPECT_EQ(*everyone, &world.all());
  });
}

TEST(CommunicatorTest, BroadcastTakesTheRootsValues) {
  RunRanks(2, [](int rank, World& world) {
    const at::Tensor t = at::full({5}, static_cast<float>(rank));
    ASSERT_OK(world.all().Broadcast(t, 1));
    EXPECT_TRUE(at::equal(t, at::ones({5})));
    EXPECT_OK(world.all().Barrier());
  });
}

TEST(CommunicatorTest, ARankThatNeverComesIsAnErrorNotAHang) {
  MemoryRendezvous rendezvous;
  GlooOptions options;
  options.size = 2;
  options.rendezvous_timeout = absl::Milliseconds(300);
  const auto world = MakeGlooWorld(options, &rendezvous);
  EXPECT_TRUE(absl::IsUnavailable(world.status())) << world.status();
}

TEST(CommunicatorTest, ARankThatWaitsForAnotherSaysWhereAndTheOtherDoesNot) {
  std::atomic<bool> first_seen = false;
  RunRanks(2, [&](int rank, World& world) {
    EXPECT_EQ(world.waiting(), "");
    std::string seen;
    // Rank 1 joins only after rank 0 was seen waiting for it.
    std::thread watcher;
    if (rank == 0) {
      watcher = std::thread([&] {
        while ((seen = world.waiting()).empty()) std::this_thread::yield();
        first_seen = true;
      });
    } else {
      while (!first_seen) std::this_thread::yield();
      EXPECT_EQ(world.waiting(), "");
    }
    ASSERT_OK(world.all().AllReduceSum(at::ones({4}))->Wait());
    if (watcher.joinable()) watcher.join();
    if (rank == 0) EXPECT_EQ(seen, "all-reduce in group {0,1}");
    EXPECT_EQ(world.waiting(), "");
  });
}

TEST(LostPeerTest, AKilledPeerSurfacesAsUnavailable) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("tessera-comm-" + std::to_string(::getpid()))).string();
  GlooOptions options;
  options.size = 2;
  // Forked before this process has any thread of LibTorch.
  const pid_t child = ::fork();
  options.rank = child == 0 ? 1 : 0;
  auto world = MakeGlooWorldOverFile(options, file);
  if (child == 0) {
    if (world.ok()) (void)(*world)->all().Barrier();
    ::_exit(9);
  }
  ASSERT_OK(world);
  EXPECT_OK((*world)->all().Barrier());
  int exit_status = 0;
  ::waitpid(child, &exit_status, 0);
  const absl::Status status = (*world)->all().AllReduceSum(at::ones({1 << 16}))->Wait();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("all-reduce in group {0,1}"), std::string::npos) << status;
  std::filesystem::remove(file);
}

// What a rank lacks is not said of its peers: the planner learns from it.
TEST(CommunicatorTest, MemoryThatACollectiveDoesNotGetIsNoLostPeer) {
  for (const char* what :
       {"[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 4096 bytes.\n#0 c10",
        "CUDA out of memory. Tried to allocate 2.00 MiB"}) {
    const absl::Status status = StatusOfCollective("all-reduce", std::runtime_error(what));
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOfCollective("all-reduce", std::bad_alloc())));
  const absl::Status closed =
      StatusOfCollective("all-reduce", std::runtime_error("Connection closed by peer [127.0.0.1]:1\nstack"));
  EXPECT_EQ(closed, absl::UnavailableError("all-reduce failed: Connection closed by peer [127.0.0.1]:1"));
}

}  // namespace
}  // namespace tessera::worker

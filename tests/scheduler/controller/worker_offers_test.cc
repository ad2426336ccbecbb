#include "scheduler/controller/worker_offers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "scheduler/job/admission.h"
#include "scheduler/plan/process.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

v1::TrainingJobSpec SpecOf(int workers) {
  v1::TrainingJobSpec spec;
  spec.mutable_workers()->set_count(workers);
  return spec;
}

v1::NodeProfile Node(const std::string& name, int64_t free_bytes, int cores) {
  v1::NodeProfile node;
  node.set_name(name);
  node.add_devices()->set_free_bytes(free_bytes);
  node.mutable_devices(0)->set_cores(cores);
  return node;
}

v1::LinkProfile Link(const std::string& from, const std::string& to, double seconds, double rate) {
  v1::LinkProfile link;
  link.set_node(from);
  link.set_peer(to);
  link.set_round_trip_seconds(seconds);
  link.set_bandwidth_bytes_per_second(rate);
  link.set_receive_bandwidth_bytes_per_second(2 * rate);
  return link;
}

ControllerOptions With(const NodeInventory& inventory) {
  ControllerOptions options;
  options.inventory = [inventory] { return inventory; };
  return options;
}

TEST(WorkerOffersTest, OneMachineIsSharedAlike) {
  ControllerOptions options{.node = "here", .memory_bytes = 4 * kGiB, .cores = 8};
  const auto offers = OffersTo(SpecOf(4), options);
  ASSERT_OK(offers);
  EXPECT_TRUE(offers->capacities.empty());
  EXPECT_EQ(offers->limit_bytes, kGiB - job::kWorkerBaseBytes);
  EXPECT_EQ(offers->cores, 2);
  EXPECT_THAT(offers->nodes, ElementsAre("here", "here", "here", "here"));
}

TEST(WorkerOffersTest, AMachineTooSmallForTheProcessesSaysWhatItHasAndWhatTheyTake) {
  ControllerOptions options{.node = "here", .memory_bytes = 900'000'000, .cores = 8};
  const auto offers = OffersTo(SpecOf(8), options);
  EXPECT_TRUE(absl::IsResourceExhausted(offers.status()));
  EXPECT_THAT(std::string(offers.status().message()),
              HasSubstr("the job does not fit: the machine has 858.3 MiB for jobs, 107.3 MiB for each "
                        "of 8 workers, and a worker's "
                        "process takes 190.7 MiB before it holds a tensor; use at most 4 workers there"));
}

TEST(WorkerOffersTest, TensorsHaveWhatTheMeasuredProcessLeavesThem) {
  ControllerOptions options{.node = "here", .memory_bytes = 4 * kGiB, .cores = 8};
  v1::ProcessMemory process;
  process.set_base_bytes(100'000'000);
  process.set_slack_ratio(0.25);
  process.set_communicator_bytes(1'000'000);
  const auto offers = OffersTo(SpecOf(4), options, process);
  ASSERT_OK(offers);
  // The world's communicator and those of four sets of holders.
  EXPECT_EQ(offers->limit_bytes, static_cast<int64_t>((kGiB - 105'000'000 - plan::kClientBytes) / 1.25));
}

TEST(WorkerOffersTest, StatedRatesOfComputingAreSpeeds) {
  v1::TrainingJobSpec spec = SpecOf(2);
  for (double flops : {1e12, 3e12}) {
    v1::WorkerResources& worker = *spec.mutable_resources()->add_per_worker();
    worker.set_speed(1);
    worker.set_flops_per_second(flops);
  }
  const auto offers = OffersTo(spec, {.node = "here", .cores = 8});
  ASSERT_OK(offers);
  ASSERT_EQ(offers->capacities.size(), 2u);
  EXPECT_EQ(offers->capacities[0].relative_speed, 1);
  EXPECT_EQ(offers->capacities[1].relative_speed, 3);
  EXPECT_EQ(offers->flops_per_second, 1e12);
}

TEST(WorkerOffersTest, WorkersGoToNodesAndRanksFollowTheRoundTripTimes) {
  // near-1 and near-2 are close to each other, far-1 and far-2 likewise; the names alternate.
  NodeInventory inventory{{Node("a-near", 4 * kGiB, 4), Node("b-far", 4 * kGiB, 4),
                           Node("c-near", 4 * kGiB, 4), Node("d-far", 4 * kGiB, 4)},
                          {Link("a-near", "c-near", 1e-4, 1e9), Link("b-far", "d-far", 1e-4, 1e9)}};
  for (const char* near : {"a-near", "c-near"}) {
    for (const char* far : {"b-far", "d-far"}) inventory.links.push_back(Link(near, far, 0.03, 1e7));
  }
  const auto offers = OffersTo(SpecOf(4), With(inventory));
  ASSERT_OK(offers);
  EXPECT_THAT(offers->nodes, testing::AnyOf(ElementsAre("a-near", "c-near", "b-far", "d-far"),
                                            ElementsAre("a-near", "c-near", "d-far", "b-far"),
                                            ElementsAre("a-near", "b-far", "d-far", "c-near"),
                                            ElementsAre("a-near", "d-far", "b-far", "c-near")));
  EXPECT_EQ(offers->links.size(), 6u);
}

TEST(WorkerOffersTest, WhatIsStaleIsNotPlannedBy) {
  NodeInventory inventory{{Node("a", 4 * kGiB, 4), Node("b", 4 * kGiB, 4)}, {Link("a", "b", 0.001, 1e6)}};
  inventory.links[0].set_stale(true);
  const auto offers = OffersTo(SpecOf(2), With(inventory));
  ASSERT_OK(offers);
  EXPECT_TRUE(offers->capacities.empty()) << "the one link is not known";
  EXPECT_TRUE(offers->links.empty());
  for (v1::NodeProfile& node : inventory.nodes) node.set_stale(true);
  EXPECT_TRUE(absl::IsUnavailable(OffersTo(SpecOf(2), With(inventory)).status()));
}

TEST(WorkerOffersTest, ANodeOfUnknownMemoryIsTakenForTheSmallest) {
  const NodeInventory inventory{{Node("a", 3 * kGiB, 4), Node("b", 0, 4), Node("c", 2 * kGiB, 4)}, {}};
  const auto offers = OffersTo(SpecOf(3), With(inventory));
  ASSERT_OK(offers);
  ASSERT_THAT(offers->nodes, ElementsAre("a", "b", "c"));
  ASSERT_EQ(offers->capacities.size(), 3u);
  EXPECT_EQ(offers->capacities[1].usable_bytes, offers->capacities[2].usable_bytes);
  EXPECT_LT(offers->capacities[1].usable_bytes, offers->capacities[0].usable_bytes);
}

TEST(WorkerOffersTest, JobsMayClaimWhatTheNodesThatReportHaveUnlessThereIsABound) {
  NodeInventory inventory{{Node("a", kGiB, 4), Node("b", kGiB, 4), Node("gone", kGiB, 4)}, {}};
  for (v1::NodeProfile& node : inventory.nodes) node.mutable_devices(0)->set_total_bytes(10 * kGiB);
  inventory.nodes[2].set_stale(true);
  const auto memory = MemoryOfNodes(With(inventory));
  ASSERT_EQ(memory.size(), 2u) << "a node that is gone has nothing";
  EXPECT_NEAR(static_cast<double>(memory.at("a").for_jobs), 9.0 * kGiB, 2);
  ControllerOptions bounded = With(inventory);
  bounded.memory_bytes = 7 * kGiB;
  EXPECT_EQ(MemoryOfNodes(bounded).at("").for_jobs, 7 * kGiB);
  EXPECT_TRUE(MemoryOfNodes(With({})).empty()) << "nobody reports";
}

}  // namespace
}  // namespace tessera::scheduler

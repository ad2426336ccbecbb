// Jobs that are planned for nodes that stop reporting.
#include <gmock/gmock.h>

#include "tests/scheduler/controller/controller_harness.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class LostNodeTest : public ControllerHarness {
 protected:
  void SetUp() override {
    ControllerHarness::SetUp();
    options_.inventory = [this] {
      absl::MutexLock lock(&mutex_);
      return inventory_;
    };
    for (const char* name : {"node-a", "node-b"}) {
      v1::NodeProfile& node = inventory_.nodes.emplace_back();
      node.set_name(name);
      node.add_devices()->set_cores(4);
    }
    Have(int64_t{8} << 30);
    RestartController();
  }
  void TearDown() override {
    StopController();  // it asks for the inventory
    ControllerHarness::TearDown();
  }

  void Have(int64_t bytes) {
    absl::MutexLock lock(&mutex_);
    for (v1::NodeProfile& node : inventory_.nodes) {
      node.mutable_devices(0)->set_total_bytes(bytes);
      node.mutable_devices(0)->set_free_bytes(bytes);
    }
  }
  void Report(int node, bool reports) {
    absl::MutexLock lock(&mutex_);
    inventory_.nodes[static_cast<size_t>(node)].set_stale(!reports);
  }
  std::string SubmitSuspended() {
    v1::TrainingJob job = Job("a");
    job.mutable_spec()->set_suspend(true);
    const std::string uid = Submit(job);
    AwaitState("a", v1::JOB_STATE_SUSPENDED);
    return uid;
  }
  v1::TrainingJob AwaitMessage(const std::string& part) {
    return Await("a", [&](const auto& j) { return j.status().message().find(part) != std::string::npos; });
  }

  absl::Mutex mutex_;
  NodeInventory inventory_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(LostNodeTest, AWaitingJobIsPlannedForTheNodesThatAreThere) {
  const std::string uid = SubmitSuspended();
  Report(1, false);
  ASSERT_OK(controller_->Resume(Key("a")));
  AwaitMessage("waits for node 'node-b'");
  EXPECT_EQ(store_->Plans(Key("a"))->size(), 1) << "an agent may be late";
  Advance(absl::Seconds(31));
  Train("a", uid, 1);
  EXPECT_THAT(launcher_.launches().at(0).nodes, ElementsAre("node-a", "node-a"));
  const v1::Plan plan = store_->Plans(Key("a"))->back();
  EXPECT_EQ(plan.generation(), 2);
  EXPECT_THAT(plan.reason(), HasSubstr("node 'node-b', which plan 1 was made for, does not report"));
  EXPECT_THAT(EventReasons("a"), Contains("Replanned"));
}

TEST_F(LostNodeTest, ARestartLeavesTheNodeThatWentWithItsWorker) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->mutable_retry()->mutable_backoff()->set_seconds(3600);
  const std::string uid = Submit(job);
  Train("a", uid, 1);
  EXPECT_THAT(launcher_.launches().at(0).nodes, UnorderedElementsAre("node-a", "node-b"));
  Report(1, false);
  for (int rank : {0, 1}) launcher_.Exit(uid, 1, rank, 0, 9);
  AwaitState("a", v1::JOB_STATE_DEGRADED);
  AwaitTrue([&] { return launcher_.Running() == 0; });
  AwaitMessage("restarts in");
  Advance(absl::Seconds(31));
  AwaitState("a", v1::JOB_STATE_QUEUED);
  Advance(absl::Hours(1));  // no sooner than it would have been started again
  Train("a", uid, 2);
  EXPECT_THAT(launcher_.launches().at(1).nodes, ElementsAre("node-a", "node-a"));
  EXPECT_THAT(EventReasons("a"), Contains("NodeLost"));
  EXPECT_EQ(Await("a", [](const auto&) { return true; }).status().restarts(), 1);
}

TEST_F(LostNodeTest, AnElasticJobGoesOnWithWhatTheOtherNodeHoldsAndTakesTheLostOneBack) {
  Have(300'000'000);  // one worker's process and its few tensors each
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->mutable_workers()->set_min(1);
  job.mutable_spec()->mutable_workers()->set_max(2);
  job.mutable_spec()->mutable_deadlines()->mutable_step()->set_seconds(3600);
  job.mutable_spec()->mutable_retry()->mutable_backoff()->set_seconds(60);
  const std::string uid = Submit(job);
  Train("a", uid, 1);
  Report(1, false);
  for (int rank : {0, 1}) launcher_.Exit(uid, 1, rank, 0, 9);
  AwaitState("a", v1::JOB_STATE_DEGRADED);
  AwaitMessage("restarts in");
  Advance(absl::Seconds(31));
  AwaitState("a", v1::JOB_STATE_QUEUED);
  Advance(absl::Minutes(1));
  auto sinks = Train("a", uid, 2, 1);
  EXPECT_THAT(launcher_.launches().at(1).nodes, ElementsAre("node-a"));
  EXPECT_THAT(EventReasons("a"), Contains("Shrunk"));
  Report(1, true);
  Advance(options_.elastic_growth);
  sinks[0]->AwaitStop();
  FinishAll(uid, 2, v1::WORKER_OUTCOME_STOPPED, 1);
  Train("a", uid, 3, 2);
  EXPECT_THAT(launcher_.launches().at(2).nodes, UnorderedElementsAre("node-a", "node-b"));
}

TEST_F(LostNodeTest, AJobThatFitsNowhereElseWaitsForItsNode) {
  Have(300'000'000);  // one worker's process and its few tensors each
  const std::string uid = SubmitSuspended();
  Report(1, false);
  ASSERT_OK(controller_->Resume(Key("a")));
  AwaitMessage("waits for node 'node-b'");
  Advance(absl::Seconds(31));
  AwaitMessage("there is no plan without it");
  EXPECT_THAT(EventReasons("a"), Contains("NodeLost"));
  EXPECT_THAT(EventReasons("a"), Not(Contains("PlanningFailed")));
  Report(1, true);
  Train("a", uid, 1);
  EXPECT_THAT(launcher_.launches().at(0).nodes, UnorderedElementsAre("node-a", "node-b"));
}

TEST_F(LostNodeTest, WithNoNodeAtAllNothingIsPlannedAgain) {
  const std::string uid = SubmitSuspended();
  for (int node : {0, 1}) Report(node, false);
  ASSERT_OK(controller_->Resume(Key("a")));
  AwaitMessage("waits for node 'node-a'");
  Advance(absl::Minutes(10));
  AwaitPasses();
  for (int node : {0, 1}) Report(node, true);
  Train("a", uid, 1);
  EXPECT_EQ(store_->Plans(Key("a"))->size(), 1);
}

}  // namespace
}  // namespace tessera::scheduler

// Jobs that take fewer workers where all can't be had, and more where there is room again.
#include <gmock/gmock.h>

#include "tests/scheduler/controller/controller_harness.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kThreeWorkers = 700'000'000;  // a worker's base is 200 MB

class ElasticTest : public ControllerHarness {
 protected:
  void SetUp() override {
    ControllerHarness::SetUp();
    Memory(kThreeWorkers);
  }
  void Memory(int64_t bytes) {
    StopController();
    options_.memory_bytes = bytes;
    RestartController();
  }

  static v1::TrainingJob Elastic(const std::string& name, int min, int count, int max) {
    v1::TrainingJob job = Job(name, count);
    job.mutable_spec()->mutable_workers()->set_min(min);
    job.mutable_spec()->mutable_workers()->set_max(max);
    job.mutable_spec()->mutable_deadlines()->mutable_step()->set_seconds(3600);
    return job;
  }
  static bool IsStarting(const v1::TrainingJob& job, int workers) {
    return job.status().workers_size() == workers && job.status().state() == v1::JOB_STATE_STARTING;
  }
  // "b" of 1 to 3 workers beside "a", which has 2: it has waited, and got 1.
  std::string SubmitBesideAnother() {
    first_ = Submit(Job("a"));
    Train("a", first_, 1);
    const std::string uid = Submit(Elastic("b", 1, 3, 3));
    Await("b", [](const v1::TrainingJob& job) { return job.status().reason() == "WaitingForCapacity"; });
    Advance(options_.elastic_patience);
    Await("b", [](const v1::TrainingJob& job) { return IsStarting(job, 1); });
    return uid;
  }

  // "b" trains and "a" ends: the stop for which it grows.
  v1::Stop AwaitGrowth(const std::string& uid) {
    auto sinks = Train("b", uid, 1, 1);
    FinishAll(first_, 1, v1::WORKER_OUTCOME_COMPLETED);
    AwaitState("a", v1::JOB_STATE_SUCCEEDED);
    Advance(options_.elastic_growth);
    return sinks[0]->AwaitStop();
  }

  std::string first_;
};

TEST_F(ElasticTest, StartsWithAsManyWorkersAsTheMachineHolds) {
  const std::string uid = Submit(Elastic("a", 2, 5, 5));
  const v1::TrainingJob job = Await("a", [](const v1::TrainingJob& now) { return IsStarting(now, 3); });
  EXPECT_EQ(job.spec().workers().count(), 5);  // what was asked for stays
  EXPECT_THAT(job.status().notices(), Contains("3 of 5 workers are planned: more do not fit, and "
                                               "spec.workers.min is 2"));
  const v1::Assignment assignment = ConnectAll(uid, 1, 3)[0]->AwaitAssignment();
  EXPECT_EQ(assignment.world_size(), 3);
  EXPECT_EQ(assignment.spec().workers().count(), 3);
}

TEST_F(ElasticTest, FewerThanTheLeastAreRefused) {
  const auto refused = controller_->Create(Elastic("a", 4, 5, 5), "", false);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("5 workers"));
}

TEST_F(ElasticTest, AWaitingJobTakesWhatIsFree) {
  SubmitBesideAnother();
  EXPECT_THAT(EventReasons("b"), Contains("Shrunk"));
  const auto plans = store_->Plans(Key("b"));
  ASSERT_EQ(plans->size(), 2u);
  EXPECT_EQ(plans->back().generation(), 2);
  EXPECT_EQ(plans->back().workers_size(), 1);
  EXPECT_THAT(plans->back().reason(),
              HasSubstr("resized from 3 to 1 workers, as more could not be had: needs"));
}

TEST_F(ElasticTest, GrowsAtACheckpointWhenThereIsRoom) {
  const std::string uid = SubmitBesideAnother();
  const v1::Stop stop = AwaitGrowth(uid);
  EXPECT_TRUE(stop.checkpoint());
  EXPECT_EQ(stop.reason(), "resized");
  EXPECT_THAT(EventReasons("b"), Contains("Growing"));
  FinishAll(uid, 1, v1::WORKER_OUTCOME_STOPPED, 1);
  Await("b", [](const v1::TrainingJob& job) { return IsStarting(job, 3); });
  EXPECT_EQ(ConnectAll(uid, 2, 3)[2]->AwaitAssignment().world_size(), 3);
  EXPECT_EQ(store_->Plans(Key("b"))->back().reason(), "resized from 1 to 3 workers");
}

TEST_F(ElasticTest, NothingGrowsWhileAnotherJobWaits) {
  const std::string uid = SubmitBesideAnother();
  Train("b", uid, 1, 1);
  FinishAll(first_, 1, v1::WORKER_OUTCOME_COMPLETED);
  AwaitState("a", v1::JOB_STATE_SUCCEEDED);
  const std::string waiting = Submit(Job("c", 3));  // needs all there is
  Await("c", [](const v1::TrainingJob& job) { return job.status().reason() == "WaitingForCapacity"; });
  Advance(options_.elastic_growth);
  AwaitPasses();
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED, 1);
  Train("c", waiting, 1, 3);
  EXPECT_THAT(EventReasons("b"), Not(Contains("Growing")));
}

TEST_F(ElasticTest, ARestartedSchedulerKnowsTheSizeOfTheGroup) {
  const std::string uid = SubmitBesideAnother();
  StopController();
  RestartController();
  const auto sinks = ConnectAll(uid, 1, 1);
  EXPECT_EQ(sinks[0]->AwaitAssignment().world_size(), 1);
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED, 1);
  EXPECT_EQ(AwaitState("b", v1::JOB_STATE_SUCCEEDED).status().workers_size(), 1);
}

TEST_F(ElasticTest, ASchedulerRestartedWhileAJobGrowsGoesOnWithIt) {
  const std::string uid = SubmitBesideAnother();
  AwaitGrowth(uid);
  StopController();
  RestartController();
  ConnectAll(uid, 1, 1, 5);
  FinishAll(uid, 1, v1::WORKER_OUTCOME_STOPPED, 1);
  Await("b", [](const v1::TrainingJob& job) { return IsStarting(job, 3); });
}

TEST_F(ElasticTest, AResizeByHandMovesTheCountAndKeepsTheBounds) {
  const std::string uid = SubmitBesideAnother();
  Train("b", uid, 1, 1);
  ASSERT_OK(controller_->Resize(Key("b"), "", 2));
  FinishAll(uid, 1, v1::WORKER_OUTCOME_STOPPED, 1);
  const v1::TrainingJob job =
      Await("b", [](const v1::TrainingJob& now) { return now.spec().workers().count() == 2; });
  EXPECT_EQ(job.spec().workers().min(), 1);
  EXPECT_EQ(job.spec().workers().max(), 3);
}

}  // namespace
}  // namespace tessera::scheduler

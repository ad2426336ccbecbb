#include <gmock/gmock.h>

#include "tests/scheduler/controller/controller_harness.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::HasSubstr;

class QueueingTest : public ControllerHarness {
 protected:
  void SetUp() override {
    ControllerHarness::SetUp();
    StopController();
    options_.memory_bytes = 500'000'000;  // two workers' base is 400 MB
    RestartController();
  }
};

TEST_F(QueueingTest, AJobWaitsUntilTheOneBeforeItIsDoneAndSaysWhy) {
  const std::string first = Submit(Job("a"));
  AwaitState("a", v1::JOB_STATE_STARTING);
  const std::string second = Submit(Job("b"));
  const auto waiting =
      Await("b", [](const v1::TrainingJob& j) { return j.status().reason() == "WaitingForCapacity"; });
  EXPECT_THAT(waiting.status().message(), HasSubstr("of 500 MB are free"));
  Train("a", first, 1);
  FinishAll(first, 1, v1::WORKER_OUTCOME_COMPLETED);
  Train("b", second, 1);
  EXPECT_EQ(launcher_.Running(), 2);
}

TEST_F(QueueingTest, AJobWaitsForGpusThatAnotherHas) {
  StopController();
  options_.memory_bytes = 64'000'000'000;
  options_.gpu_bytes = {80'000'000'000, 80'000'000'000, 80'000'000'000};
  RestartController();
  const auto on_gpus = [](const std::string& name, int workers) {
    v1::TrainingJob job = Job(name, workers);
    job.mutable_spec()->mutable_resources()->set_gpus(1);
    return job;
  };
  const std::string first = Submit(on_gpus("a", 2));
  AwaitState("a", v1::JOB_STATE_STARTING);
  const std::string second = Submit(on_gpus("b", 2));
  const auto waiting =
      Await("b", [](const v1::TrainingJob& j) { return j.status().reason() == "WaitingForCapacity"; });
  EXPECT_THAT(waiting.status().message(), HasSubstr("needs 2 GPUs; 1 of 3 are free"));
  const std::string third = Submit(Job("c"));  // on the CPU
  Train("c", third, 1);
  RestartController();  // which GPUs are held follows from the jobs' states
  Train("a", first, 1);
  EXPECT_EQ(Await("b", [](const auto&) { return true; }).status().state(), v1::JOB_STATE_QUEUED);
  FinishAll(first, 1, v1::WORKER_OUTCOME_COMPLETED);
  Train("b", second, 1);
}

TEST_F(QueueingTest, PriorityGoesBeforeAge) {
  const std::string first = Submit(Job("a"));
  AwaitState("a", v1::JOB_STATE_STARTING);
  Submit(Job("b"));
  v1::TrainingJob urgent = Job("c");
  urgent.mutable_spec()->set_priority(10);
  const std::string third = Submit(urgent);
  Train("a", first, 1);
  FinishAll(first, 1, v1::WORKER_OUTCOME_COMPLETED);
  Train("c", third, 1);
  EXPECT_EQ(Await("b", [](const auto&) { return true; }).status().state(), v1::JOB_STATE_QUEUED);
}

TEST_F(QueueingTest, TheQueueDeadlineFailsAJobWithTheReason) {
  Submit(Job("a"));
  AwaitState("a", v1::JOB_STATE_STARTING);
  v1::TrainingJob job = Job("b");
  job.mutable_spec()->mutable_deadlines()->mutable_queue()->set_seconds(60);
  Submit(job);
  Await("b", [](const v1::TrainingJob& j) { return j.status().reason() == "WaitingForCapacity"; });
  Advance(absl::Seconds(61));
  EXPECT_THAT(AwaitState("b", v1::JOB_STATE_FAILED).status().message(), HasSubstr("needs "));
}

TEST_F(QueueingTest, SuspendingGivesTheMachineToTheNext) {
  const std::string first = Submit(Job("a"));
  auto sinks = Train("a", first, 1);
  const std::string second = Submit(Job("b"));
  ASSERT_OK(controller_->Suspend(Key("a")));
  sinks[0]->AwaitStop();
  FinishAll(first, 1, v1::WORKER_OUTCOME_STOPPED);
  Train("b", second, 1);
  ASSERT_OK(controller_->Resume(Key("a")));
  Await("a", [](const v1::TrainingJob& j) { return j.status().reason() == "WaitingForCapacity"; });
  FinishAll(second, 1, v1::WORKER_OUTCOME_COMPLETED);
  Train("a", first, 2);
}

}  // namespace
}  // namespace tessera::scheduler

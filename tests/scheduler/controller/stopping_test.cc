#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/scheduler/controller/controller_harness.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::Contains;

class StoppingTest : public ControllerHarness {};

TEST_F(StoppingTest, AQueuedJobIsCancelledAtOnce) {
  StopController();
  options_.memory_bytes = 500'000'000;
  RestartController();
  Submit(Job("a"));
  AwaitState("a", v1::JOB_STATE_STARTING);
  Submit(Job("b"));
  AwaitState("b", v1::JOB_STATE_QUEUED);
  ASSERT_OK(controller_->Cancel(Key("b")));
  AwaitState("b", v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(launcher_.launches().size(), 1u);
}

TEST_F(StoppingTest, AStartingJobIsCancelledWithoutACheckpoint) {
  Submit(Job("a"));
  AwaitTrue([&] { return launcher_.Running() == 2; });
  ASSERT_OK(controller_->Cancel(Key("a")));
  AwaitState("a", v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(launcher_.Running(), 0);
}

TEST_F(StoppingTest, ARunningJobIsAskedToCheckpointAndThenCancelled) {
  const std::string uid = Submit(Job("a"));
  auto sinks = Train("a", uid, 1);
  ASSERT_OK(controller_->Cancel(Key("a")));
  for (auto& sink : sinks) EXPECT_TRUE(sink->AwaitStop().checkpoint());
  EXPECT_EQ(launcher_.Running(), 2) << "they are given time";
  FinishAll(uid, 1, v1::WORKER_OUTCOME_STOPPED);
  const auto job = AwaitState("a", v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job.status().message(), "cancelled after a checkpoint");
  EXPECT_TRUE(job.status().has_end_time());
}

TEST_F(StoppingTest, WorkersThatDoNotStopAreTerminatedThenKilled) {
  launcher_.IgnoreTerminate();
  const std::string uid = Submit(Job("a"));
  auto sinks = Train("a", uid, 1);
  ASSERT_OK(controller_->Cancel(Key("a")));
  sinks[0]->AwaitStop();
  Advance(absl::Seconds(61));
  AwaitTrue([&] { return launcher_.terminations() > 0; });
  EXPECT_EQ(launcher_.Running(), 2);
  Advance(absl::Seconds(11));
  AwaitState("a", v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(launcher_.Running(), 0);
  EXPECT_EQ(launcher_.terminations(), 1);
}

TEST_F(StoppingTest, ASuspendedJobIsCancelled) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->set_suspend(true);
  Submit(job);
  AwaitState("a", v1::JOB_STATE_SUSPENDED);
  ASSERT_OK(controller_->Cancel(Key("a")));
  AwaitState("a", v1::JOB_STATE_CANCELLED);
}

TEST_F(StoppingTest, AJobThatWaitsForItsRetryIsCancelled) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->mutable_retry()->mutable_backoff()->set_seconds(300);
  const std::string uid = Submit(job);
  Train("a", uid, 1);
  launcher_.Exit(uid, 1, 0, 0, 9);
  AwaitState("a", v1::JOB_STATE_DEGRADED);
  ASSERT_OK(controller_->Cancel(Key("a")));
  AwaitState("a", v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(launcher_.Running(), 0);
}

TEST_F(StoppingTest, AnEndedJobCanNotBeCancelledOrSuspended) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED);
  AwaitState("a", v1::JOB_STATE_SUCCEEDED);
  AwaitTrue([&] { return absl::IsFailedPrecondition(controller_->Cancel(Key("a")).status()); });
  EXPECT_TRUE(absl::IsFailedPrecondition(controller_->Suspend(Key("a")).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(controller_->Resume(Key("a")).status()));
  EXPECT_TRUE(absl::IsNotFound(controller_->Cancel(Key("ghost")).status()));
}

TEST_F(StoppingTest, CancellingTwiceIsTheSameAsOnce) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  ASSERT_OK(controller_->Cancel(Key("a")));
  ASSERT_OK(controller_->Cancel(Key("a")));
  FinishAll(uid, 1, v1::WORKER_OUTCOME_STOPPED);
  AwaitState("a", v1::JOB_STATE_CANCELLED);
  AwaitTrue([&] { return controller_->Cancel(Key("a")).ok(); });
}

TEST_F(StoppingTest, ASuspendedJobResumesWithANewEpochFromItsCheckpoint) {
  const std::string uid = Submit(Job("a"));
  auto sinks = Train("a", uid, 1, 2, 30);
  ASSERT_OK(controller_->Suspend(Key("a")));
  sinks[0]->AwaitStop();
  v1::WorkerUp up;
  up.mutable_checkpoint()->set_step(30);
  up.mutable_checkpoint()->set_path("/elsewhere/step-00000030");
  controller_->WorkerMessage(Who(uid, 1, 0), up);
  FinishAll(uid, 1, v1::WORKER_OUTCOME_STOPPED);
  AwaitState("a", v1::JOB_STATE_SUSPENDED);
  EXPECT_THAT(EventReasons("a"), Contains("CheckpointWritten"));

  ASSERT_OK(controller_->Resume(Key("a")));
  auto resumed = Train("a", uid, 2, 2, 31);
  EXPECT_EQ(resumed[0]->AwaitAssignment().resume_from(), "/elsewhere/step-00000030");
  EXPECT_EQ(resumed[1]->AwaitAssignment().resume_from(), "/elsewhere/step-00000030");
  FinishAll(uid, 2, v1::WORKER_OUTCOME_COMPLETED);
  EXPECT_EQ(AwaitState("a", v1::JOB_STATE_SUCCEEDED).status().restarts(), 0) << "resuming is no restart";
}

TEST_F(StoppingTest, DeletingARunningJobCancelsItFirst) {
  const std::string uid = Submit(Job("a"));
  auto sinks = Train("a", uid, 1);
  EXPECT_TRUE(absl::IsAborted(controller_->Delete(Key("a"), "stale")));
  ASSERT_OK(controller_->Delete(Key("a"), ""));
  sinks[0]->AwaitStop();
  FinishAll(uid, 1, v1::WORKER_OUTCOME_STOPPED);
  AwaitTrue([&] { return absl::IsNotFound(store_->Get(Key("a")).status()); });
  EXPECT_TRUE(absl::IsNotFound(controller_->Delete(Key("a"), "")));
  AwaitTrue([&] { return !std::filesystem::exists(folder_ / "jobs" / uid); });
}

TEST_F(StoppingTest, DeletingAFinishedJobRemovesItsFilesUnlessItsEtagIsStale) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED);
  AwaitState("a", v1::JOB_STATE_SUCCEEDED);
  AwaitTrue([&] { return absl::IsAborted(controller_->Delete(Key("a"), "stale")); });
  EXPECT_TRUE(std::filesystem::exists(folder_ / "jobs" / uid));
  ASSERT_OK(controller_->Delete(Key("a"), ""));
  AwaitTrue([&] { return !std::filesystem::exists(folder_ / "jobs" / uid); });
}

TEST_F(StoppingTest, FilesOfADeletedJobAreRemovedByTheNextSchedulerAndOthersStay) {
  const std::string uid = Submit(Job("a"));
  StopController();
  const auto half_deleted = folder_ / "jobs" / "00000000-dead";
  const auto unknown = folder_ / "jobs" / "00000000-beef";
  for (const auto& path : {half_deleted, unknown}) std::filesystem::create_directories(path / "checkpoints");
  std::ofstream(half_deleted / "deleted").flush();
  std::ofstream(folder_ / "jobs" / uid / "deleted").flush();  // its job is still in the store
  RestartController();
  EXPECT_FALSE(std::filesystem::exists(half_deleted));
  EXPECT_TRUE(std::filesystem::exists(unknown));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "jobs" / uid));
  StopController();
  RestartController();
  EXPECT_TRUE(std::filesystem::exists(folder_ / "jobs" / uid));
}

TEST_F(StoppingTest, WorkersWhoseStartWasNotRecordedAreKilledWhenTheJobIsCancelled) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  StopController();
  auto record = store_->Get(Key("a"));
  ASSERT_OK(record);
  record->processes.clear();  // as if the scheduler had died before it could store them
  record->job.mutable_status()->set_cancel_requested(true);
  ASSERT_OK(store_->Update(*record));
  EXPECT_EQ(launcher_.Running(), 2);
  RestartController();
  AwaitState("a", v1::JOB_STATE_CANCELLED);
  AwaitTrue([&] { return launcher_.Running() == 0; });
}

}  // namespace
}  // namespace tessera::scheduler

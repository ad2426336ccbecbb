#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/scheduler/controller/controller_harness.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class FailureTest : public ControllerHarness {};

TEST_F(FailureTest, AKilledWorkerRestartsTheGroupFromTheNewestCheckpoint) {
  const std::string uid = Submit(Job("a"));
  auto sinks = Train("a", uid, 1, 2, 40);
  const auto checkpoints = folder_ / "jobs" / uid / "checkpoints";
  for (const char* name : {"step-00000020", "step-00000040", "step-00000060.tmp", "step-00000080"}) {
    std::filesystem::create_directories(checkpoints / name);
  }
  for (const char* name : {"step-00000020", "step-00000040", "step-00000060.tmp"}) {
    std::ofstream(checkpoints / name / "manifest.json") << "{}";
  }
  Finish(uid, 1, 0, v1::WORKER_OUTCOME_PEER_LOST, "connection closed by peer");
  launcher_.Exit(uid, 1, 1, 0, 9);

  auto next = Train("a", uid, 2, 2, 41);
  EXPECT_TRUE(absl::IsAborted(sinks[1]->AwaitClose())) << "the old epoch is fenced";
  EXPECT_EQ(next[0]->AwaitAssignment().resume_from(), (checkpoints / "step-00000040").string());
  const auto job = Await("a", [](const v1::TrainingJob& j) { return j.status().step() == 41; });
  EXPECT_EQ(job.status().restarts(), 1);
  EXPECT_EQ(job.status().epoch(), 2);
  EXPECT_EQ(launcher_.RunningEpochs(uid), 1);
  auto events = store_->Events(Key("a"));
  ASSERT_OK(events);
  bool told = false;
  for (const auto& event : *events) {
    told |= event.type() == "Warning" && event.reason() == "WorkerKilled" &&
            event.message().find("worker 1 was killed by signal 9 (SIGKILL)") != std::string::npos;
  }
  EXPECT_TRUE(told);
  FinishAll(uid, 2, v1::WORKER_OUTCOME_COMPLETED);
  AwaitState("a", v1::JOB_STATE_SUCCEEDED);
}

TEST_F(FailureTest, RunningOutOfMemoryMeansASmallerCoverageIfItIsAutomatic) {
  v1::TrainingJob job = Job("a", 4);
  job.mutable_spec()->mutable_subnetwork()->clear_coverage();
  job.mutable_spec()->mutable_subnetwork()->set_coverage_auto(true);
  job.mutable_spec()->mutable_retry()->set_out_of_memory(3);
  const std::string uid = Submit(job);
  Train("a", uid, 1, 4);
  const v1::Plan before = store_->Plans(Key("a"))->back();
  Finish(uid, 1, 2, v1::WORKER_OUTCOME_OUT_OF_MEMORY, "cannot allocate");
  for (int rank = 0; rank < 4; ++rank) launcher_.Exit(uid, 1, rank, rank == 2 ? 12 : 14, 0);
  Train("a", uid, 2, 4);
  const v1::Plan after = store_->Plans(Key("a"))->back();
  EXPECT_EQ(after.generation(), before.generation() + 1);
  EXPECT_LT(after.inputs().coverage(), before.inputs().coverage());
  EXPECT_THAT(after.reason(), HasSubstr("worker 2 ran out of memory"));
  EXPECT_LT(after.workers(2).memory().peak(), before.workers(2).memory().peak());
  const auto told = Await("a", [](const auto& j) { return j.status().notices_size() > 1; });
  EXPECT_EQ(told.status().plan_generation(), after.generation());
  FinishAll(uid, 2, v1::WORKER_OUTCOME_COMPLETED, 4);
  AwaitState("a", v1::JOB_STATE_SUCCEEDED);
}

TEST_F(FailureTest, RunningOutOfMemoryMeansCheckpointedActivationsWhereThatIsAllowed) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->set_activation_checkpointing(v1::ACTIVATION_CHECKPOINTING_AUTO);
  job.mutable_spec()->mutable_retry()->set_out_of_memory(3);
  job.mutable_spec()->mutable_workers()->set_batch(64);  // activations are most of it
  describer_.SaveOutputs(8);
  const std::string uid = Submit(job);
  EXPECT_EQ(Train("a", uid, 1).at(0)->AwaitAssignment().spec().activation_checkpointing(),
            v1::ACTIVATION_CHECKPOINTING_NEVER);
  Finish(uid, 1, 1, v1::WORKER_OUTCOME_OUT_OF_MEMORY, "cannot allocate");
  for (int rank = 0; rank < 2; ++rank) launcher_.Exit(uid, 1, rank, rank == 1 ? 12 : 14, 0);
  EXPECT_EQ(Train("a", uid, 2).at(0)->AwaitAssignment().spec().activation_checkpointing(),
            v1::ACTIVATION_CHECKPOINTING_ALWAYS);
  const v1::Plan after = store_->Plans(Key("a"))->back();
  EXPECT_EQ(after.generation(), 2);
  EXPECT_EQ(after.inputs().coverage(), store_->Plans(Key("a"))->front().inputs().coverage());
  EXPECT_THAT(after.activation_checkpointing_reason(), HasSubstr("on: without it the job does not fit"));
  const auto told = Await("a", [](const auto& j) { return j.status().notices_size() > 0; });
  EXPECT_THAT(told.status().notices(told.status().notices_size() - 1),
              HasSubstr("activations are checkpointed"));
  FinishAll(uid, 2, v1::WORKER_OUTCOME_COMPLETED);
  AwaitState("a", v1::JOB_STATE_SUCCEEDED);
}

TEST_F(FailureTest, AtTheRetryLimitTheJobFailsNamingRankAndCause) {
  v1::TrainingJob spec = Job("a");
  spec.mutable_spec()->mutable_retry()->set_infrastructure(2);
  const std::string uid = Submit(spec);
  for (int epoch = 1; epoch <= 3; ++epoch) {
    Train("a", uid, epoch);
    launcher_.Exit(uid, epoch, 1, 0, 9);
  }
  const auto job = AwaitState("a", v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.status().reason(), "WorkerKilled");
  EXPECT_THAT(job.status().message(), HasSubstr("worker 1 was killed by signal 9 (SIGKILL)"));
  EXPECT_THAT(job.status().message(), HasSubstr("retried 2 times"));
  EXPECT_EQ(job.status().restarts(), 2);
  EXPECT_THAT(job.status().workers(1).last_error(), HasSubstr("SIGKILL"));
  EXPECT_EQ(launcher_.Running(), 0) << "no worker outlives its job";
}

TEST_F(FailureTest, AWitnessHeardBeforeTheCulpritEndedIsNotAccused) {
  v1::TrainingJob spec = Job("a");
  spec.mutable_spec()->mutable_retry()->set_infrastructure(0);
  const std::string uid = Submit(spec);
  Train("a", uid, 1);
  Finish(uid, 1, 0, v1::WORKER_OUTCOME_PEER_LOST, "connection reset by peer");
  Await("a", [](const v1::TrainingJob& j) { return j.status().workers(0).state() == "Failed"; });
  launcher_.Exit(uid, 1, 1, 0, 9);
  const auto job = AwaitState("a", v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.status().reason(), "WorkerKilled");
  EXPECT_THAT(job.status().workers(1).last_error(), HasSubstr("SIGKILL"));
  EXPECT_EQ(job.status().workers(0).last_error(), "");
}

TEST_F(FailureTest, AnApplicationErrorIsNotRetriedByDefault) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  Finish(uid, 1, 0, v1::WORKER_OUTCOME_APPLICATION, "loss is nan at step 7");
  const auto job = AwaitState("a", v1::JOB_STATE_FAILED);
  EXPECT_THAT(job.status().message(), HasSubstr("worker 0 failed: loss is nan at step 7"));
  EXPECT_EQ(launcher_.launches().size(), 1u);
  EXPECT_EQ(launcher_.Running(), 0);
}

TEST_F(FailureTest, WitnessesAreBelievedWhenNoCulpritShowsUp) {
  v1::TrainingJob spec = Job("a");
  spec.mutable_spec()->mutable_retry()->set_infrastructure(0);
  const std::string uid = Submit(spec);
  Train("a", uid, 1);
  Finish(uid, 1, 0, v1::WORKER_OUTCOME_PEER_LOST, "timeout");
  Advance(absl::Seconds(6));
  EXPECT_THAT(AwaitState("a", v1::JOB_STATE_FAILED).status().message(),
              HasSubstr("worker 0 lost contact to its peers: timeout"));
}

TEST_F(FailureTest, AWorkerThatHangsIsNamedByThoseWhoWaitForIt) {
  v1::TrainingJob spec = Job("a");
  spec.mutable_spec()->mutable_retry()->set_infrastructure(0);
  const std::string uid = Submit(spec);
  Train("a", uid, 1);
  v1::WorkerUp standstill;
  standstill.mutable_standstill()->set_waiting_in("all-reduce in group {0,1}");
  controller_->WorkerMessage(Who(uid, 1, 0), standstill);
  Await("a", [](const v1::TrainingJob& j) {
    return j.status().workers(0).state() == "Waiting in all-reduce in group {0,1}";
  });
  Advance(absl::Seconds(301));
  const auto job = AwaitState("a", v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.status().reason(), "StepDeadlineExceeded");
  EXPECT_THAT(job.status().message(), HasSubstr("worker 1 made no step"));
  EXPECT_THAT(job.status().workers(1).last_error(), HasSubstr("worker 0 waits in all-reduce"));
}

TEST_F(FailureTest, ALaunchThatFailsForAMomentIsRetried) {
  launcher_.FailNextLaunch(absl::ResourceExhaustedError("fork: too many processes"));
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 2);
  EXPECT_EQ(Await("a", [](const auto&) { return true; }).status().restarts(), 1);
}

TEST_F(FailureTest, ALaunchThatCanNeverWorkFailsTheJob) {
  launcher_.FailNextLaunch(absl::NotFoundError("no worker program at '/x'"));
  Submit(Job("a"));
  EXPECT_THAT(AwaitState("a", v1::JOB_STATE_FAILED).status().message(),
              HasSubstr("no worker program at '/x'"));
}

TEST_F(FailureTest, AGroupThatMakesNoStepIsRestartedAfterItsDeadline) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  Advance(absl::Seconds(301));
  const auto job = Await("a", [](const v1::TrainingJob& j) { return j.status().epoch() == 2; });
  EXPECT_EQ(job.status().restarts(), 1);
  bool told = false;
  const auto events = store_->Events(Key("a"));
  ASSERT_OK(events);
  for (const auto& event : *events) told |= event.reason() == "StepDeadlineExceeded";
  EXPECT_TRUE(told);
}

// A full disk fails every checkpoint in the workers' logs alone, and the job says it is fine.
TEST_F(FailureTest, CheckpointsThatDoNotComeAreToldOnceAnEpoch) {
  v1::TrainingJob spec = Job("a");
  spec.mutable_spec()->mutable_checkpoint()->set_interval(10);
  const std::string uid = Submit(spec);
  Train("a", uid, 1);
  v1::WorkerUp written;
  written.mutable_checkpoint()->set_step(10);
  written.mutable_checkpoint()->set_path("/elsewhere/step-00000010");
  controller_->WorkerMessage(Who(uid, 1, 0), written);
  Report(uid, 1, 0, 39);
  EXPECT_THAT(EventReasons("a"), Not(Contains("CheckpointsMissed")));
  for (const int64_t step : {40, 50, 90}) Report(uid, 1, 0, step);
  const std::vector<std::string> reasons = EventReasons("a");
  EXPECT_EQ(std::count(reasons.begin(), reasons.end(), "CheckpointsMissed"), 1);
  const auto told = [](const v1::TrainingJob& job) { return job.status().notices_size() > 0; };
  EXPECT_THAT(Await("a", told).status().notices(0),
              HasSubstr("no checkpoint was completed since step 10, and one is due every 10 steps"));
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED);
}

TEST_F(FailureTest, MessagesOfAnOldEpochChangeNothing) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  launcher_.Exit(uid, 1, 1, 0, 9);
  Train("a", uid, 2);
  Finish(uid, 1, 0, v1::WORKER_OUTCOME_APPLICATION, "late");
  Report(uid, 1, 0, 99);
  FinishAll(uid, 2, v1::WORKER_OUTCOME_COMPLETED);
  const auto job = AwaitState("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_LT(job.status().step(), 99);
}

}  // namespace
}  // namespace tessera::scheduler

// The scheduler goes away and comes back; workers do not care.
#include <gmock/gmock.h>

#include "tests/scheduler/controller/controller_harness.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::HasSubstr;

class RestartTest : public ControllerHarness {};

TEST_F(RestartTest, ARunningJobIsAdoptedAndSucceeds) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1, 2, 10);
  const auto token = controller_->WorkerToken(uid, 1);
  StopController();
  launcher_.ForgetExits();
  RestartController();
  EXPECT_EQ(*controller_->WorkerToken(uid, 1), *token);
  auto sinks = ConnectAll(uid, 1, 2, /*step=*/25);
  Report(uid, 1, 0, 26);
  Await("a", [](const v1::TrainingJob& j) { return j.status().step() == 26; });
  for (auto& sink : sinks) EXPECT_EQ(sink->assignments(), 0);
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED);
  const auto job = AwaitState("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.status().epoch(), 1);
  EXPECT_EQ(job.status().restarts(), 0);
  EXPECT_EQ(launcher_.launches().size(), 1u);
}

TEST_F(RestartTest, AWorkerThatLoadsOrEvaluatesDuringARestartIsNotTakenForOneThatNeverMet) {
  const std::string uid = Submit(Job("a"));
  AwaitTrue([&] { return launcher_.Running() == 2; });
  ConnectAll(uid, 1);
  StopController();
  RestartController();
  for (int rank = 0; rank < 2; ++rank) {
    v1::Hello hello;
    *hello.mutable_identity() = Who(uid, 1, rank);
    hello.set_phase(rank == 0 ? v1::WORKER_PHASE_EVALUATING : v1::WORKER_PHASE_TRAINING);
    ASSERT_OK(controller_->WorkerConnected(hello, std::make_shared<ScriptedSink>()));
  }
  Advance(absl::Seconds(200));  // past the rendezvous deadline, not past that of an evaluation
  Submit(Job("b"));
  AwaitTrue([&] { return launcher_.Running() == 4; });  // the loop has looked at both
  const auto job = Await("a", [](const auto&) { return true; });
  EXPECT_EQ(job.status().epoch(), 1);
  EXPECT_EQ(job.status().restarts(), 0);
  EXPECT_EQ(job.status().workers(0).state(), "Evaluating");
}

TEST_F(RestartTest, ReportsOfTheEndAreRememberedAcrossARestart) {
  const std::string uid = Submit(Job("a"));
  auto sinks = Train("a", uid, 1);
  Finish(uid, 1, 0, v1::WORKER_OUTCOME_COMPLETED);
  ASSERT_OK(sinks[0]->AwaitClose());
  StopController();
  launcher_.ForgetExits();
  launcher_.Exit(uid, 1, 0, 0);
  RestartController();
  Connect(uid, 1, 1, 50);
  Finish(uid, 1, 1, v1::WORKER_OUTCOME_COMPLETED);
  launcher_.Exit(uid, 1, 1, 0);
  AwaitState("a", v1::JOB_STATE_SUCCEEDED);
}

TEST_F(RestartTest, AWorkerThatDiedMeanwhileIsNoticedAndTheGroupRestarted) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  StopController();
  launcher_.ForgetExits();
  launcher_.Exit(uid, 1, 1, 0);
  RestartController();
  Train("a", uid, 2);
  FinishAll(uid, 2, v1::WORKER_OUTCOME_COMPLETED);
  EXPECT_EQ(AwaitState("a", v1::JOB_STATE_SUCCEEDED).status().restarts(), 1);
}

TEST_F(RestartTest, ACancellationGoesOn) {
  const std::string uid = Submit(Job("a"));
  auto before = Train("a", uid, 1);
  ASSERT_OK(controller_->Cancel(Key("a")));
  before[0]->AwaitStop();
  StopController();
  RestartController();
  auto sinks = ConnectAll(uid, 1, 2, 5);
  EXPECT_TRUE(sinks[0]->AwaitStop().checkpoint());
  FinishAll(uid, 1, v1::WORKER_OUTCOME_STOPPED);
  AwaitState("a", v1::JOB_STATE_CANCELLED);
}

TEST_F(RestartTest, FailuresStayCounted) {
  v1::TrainingJob spec = Job("a");
  spec.mutable_spec()->mutable_retry()->set_infrastructure(1);
  const std::string uid = Submit(spec);
  Train("a", uid, 1);
  launcher_.Exit(uid, 1, 0, 0, 9);
  Train("a", uid, 2);
  StopController();
  RestartController();
  launcher_.Exit(uid, 2, 0, 0, 9);
  AwaitState("a", v1::JOB_STATE_FAILED);
}

TEST_F(RestartTest, AnEpochThatWasStoredButNotLaunchedIsLaunchedOnce) {
  StopController();
  JobRecord record;
  record.job = Job("a");
  record.job.set_uid("aa-1");
  auto created = store_->Create(record.job, "");
  ASSERT_OK(created);
  created->job.mutable_status()->set_state(v1::JOB_STATE_STARTING);
  created->job.mutable_status()->set_epoch(1);
  ASSERT_OK(store_->Update(*created));
  v1::Plan plan;
  ASSERT_OK(store_->AddPlan(Key("a"), plan));
  RestartController();
  Train("a", "aa-1", 1);
  EXPECT_EQ(launcher_.launches().size(), 1u);
}

TEST_F(RestartTest, AJobStoredWithoutItsPlanIsPlannedAgain) {
  StopController();
  v1::TrainingJob job = Job("a");
  job.set_uid("aa-1");
  job.mutable_status()->set_state(v1::JOB_STATE_QUEUED);
  ASSERT_OK(store_->Create(job, ""));
  RestartController();
  Train("a", "aa-1", 1);
  EXPECT_EQ(store_->Plans(Key("a"))->size(), 1u);
  EXPECT_EQ(Await("a", [](const auto&) { return true; }).status().total_steps(), 100);
}

TEST_F(RestartTest, AJobStoredWithoutItsPlanThatDoesNotFitFailsAndIsNotGivenZeroMegabytes) {
  StopController();
  v1::TrainingJob job = Job("a");
  job.set_uid("aa-1");
  job.mutable_status()->set_state(v1::JOB_STATE_QUEUED);
  job.mutable_spec()->mutable_resources()->set_memory_limit_bytes(1000);
  ASSERT_OK(store_->Create(job, ""));
  RestartController();
  const auto failed = AwaitState("a", v1::JOB_STATE_FAILED);
  EXPECT_EQ(failed.status().reason(), "PlanningFailed");
  EXPECT_THAT(failed.status().message(), HasSubstr("does not fit"));
  EXPECT_EQ(launcher_.launches().size(), 0u);
}

TEST_F(RestartTest, PlanningAgainIsRetriedAsThePolicySays) {
  StopController();
  v1::TrainingJob job = Job("a");
  job.set_uid("aa-1");
  job.mutable_status()->set_state(v1::JOB_STATE_QUEUED);
  ASSERT_OK(store_->Create(job, ""));
  describer_.Fail(absl::InternalError("describing crashed"));
  RestartController();
  EXPECT_THAT(AwaitState("a", v1::JOB_STATE_FAILED).status().message(), HasSubstr("describing crashed"));
  EXPECT_EQ(describer_.calls(), 4) << "once, and three times as infrastructure failures are";
}

TEST_F(RestartTest, ASubmittedJobHasItsPlanAndNotesFromTheFirstWriteOn) {
  StopController();
  v1::Plan plan;
  plan.set_generation(7);
  ASSERT_OK(store_->Create(Job("b"), "", "the notes", &plan));
  EXPECT_EQ(store_->Get(Key("b"))->notes, "the notes");
  EXPECT_EQ(store_->Plans(Key("b"))->at(0).generation(), 7);
}

TEST_F(RestartTest, AJobThatCanNotBeDeletedDoesNotKeepTheSchedulerFromStarting) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  ASSERT_OK(controller_->Delete(Key("a"), ""));
  StopController();
  auto record = store_->Get(Key("a"));
  ASSERT_OK(record);
  record->job.mutable_status()->set_state(v1::JOB_STATE_CANCELLED);
  ASSERT_OK(store_->Update(*record));
  const auto obstacle = folder_ / "jobs" / uid / "deleted";
  std::filesystem::create_directories(obstacle);  // the mark can't be written
  RestartController();
  EXPECT_OK(store_->Get(Key("a")));
  std::filesystem::remove(obstacle);
  Advance(absl::Minutes(2));
  AwaitTrue([&] { return absl::IsNotFound(store_->Get(Key("a")).status()); });
}

}  // namespace
}  // namespace tessera::scheduler

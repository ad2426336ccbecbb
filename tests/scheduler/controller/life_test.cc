#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/scheduler/controller/controller_harness.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LifeTest : public ControllerHarness {};

TEST_F(LifeTest, AJobIsPlannedStartedTrainedAndSucceeds) {
  const std::string uid = Submit(Job("a"));
  auto sinks = Train("a", uid, 1);
  const v1::Assignment assignment = sinks[1]->AwaitAssignment();
  EXPECT_EQ(assignment.job_uid(), uid);
  EXPECT_EQ(assignment.rank(), 1);
  EXPECT_EQ(assignment.world_size(), 2);
  EXPECT_EQ(assignment.epoch(), 1);
  EXPECT_EQ(assignment.spec().schedule().steps(), 100);
  EXPECT_EQ(assignment.plan().workers_size(), 2);
  EXPECT_EQ(assignment.run_directory(), (folder_ / "jobs" / uid).string());
  EXPECT_EQ(assignment.checkpoint_directory(), (folder_ / "jobs" / uid / "checkpoints").string());
  EXPECT_EQ(assignment.resume_from(), "");

  Finish(uid, 1, 0, v1::WORKER_OUTCOME_COMPLETED);
  Finish(uid, 1, 1, v1::WORKER_OUTCOME_COMPLETED);
  EXPECT_OK(sinks[0]->AwaitClose()) << "closing confirms the report";
  for (int rank : {0, 1}) launcher_.Exit(uid, 1, rank, 0);
  const v1::TrainingJob job = AwaitState("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(job.status().has_start_time());
  EXPECT_TRUE(job.status().has_end_time());
  EXPECT_EQ(job.status().restarts(), 0);
  EXPECT_THAT(EventReasons("a"),
              ElementsAre("Submitted", "Admitted", "Starting", "WorkersStarted", "Training", "Completed"));
}

TEST_F(LifeTest, ProgressBecomesStatus) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  Report(uid, 1, 0, 10);
  Report(uid, 1, 1, 10);
  v1::WorkerUp up;
  up.mutable_progress()->set_step(11);
  up.mutable_progress()->set_tokens(11 * 64);
  up.mutable_progress()->set_step_seconds(0.5);
  up.mutable_progress()->set_validation_loss(2.5);
  controller_->WorkerMessage(Who(uid, 1, 0), up);
  const v1::TrainingJob job = Await("a", [](const v1::TrainingJob& j) { return j.status().step() == 11; });
  const v1::TrainingJobStatus& status = job.status();
  EXPECT_EQ(status.total_steps(), 100);
  EXPECT_EQ(status.tokens(), 704);
  EXPECT_DOUBLE_EQ(status.step_seconds(), 0.5);
  EXPECT_DOUBLE_EQ(status.tokens_per_second(), 128);
  EXPECT_EQ(status.eta().seconds(), 44);
  EXPECT_DOUBLE_EQ(status.validation_loss(), 2.5);
  ASSERT_EQ(status.workers_size(), 2);
  EXPECT_EQ(status.workers(1).memory_peak_bytes(), 2001);
  EXPECT_EQ(status.workers(1).traffic_bytes_per_step(), 300);
  EXPECT_GT(status.workers(1).memory_predicted_bytes(), 0);
  EXPECT_GT(status.workers(1).traffic_predicted_bytes_per_step(), 0);
  EXPECT_EQ(status.workers(1).state(), "Training");
  EXPECT_EQ(status.workers(1).metrics_address(), "127.0.0.1:9001");
  EXPECT_EQ(status.workers(1).pid(), 1001);
}

TEST_F(LifeTest, StatusSaysHowFarPredictionsAreOff) {
  describer_.MeasureTime(1e-6);
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  const v1::WorkerStatus worker = Await("a", [](const auto&) { return true; }).status().workers(1);
  const auto plan = store_->Plans(Key("a"));
  ASSERT_TRUE(plan.ok() && !plan->empty());
  v1::WorkerUp up;
  up.mutable_progress()->set_step(11);
  up.mutable_progress()->set_step_seconds(3 * plan->back().predicted_step_seconds());
  up.mutable_progress()->set_memory_peak_bytes(worker.memory_predicted_bytes() * 5 / 4);
  up.mutable_progress()->mutable_device()->set_reserved_bytes(1 << 20);
  up.mutable_progress()->mutable_device()->set_fragmentation_ratio(0.25);
  for (int rank : {0, 1}) controller_->WorkerMessage(Who(uid, 1, rank), up);
  const auto status =
      Await("a", [](const auto& j) { return j.status().memory_prediction_error() > 0; }).status();
  EXPECT_NEAR(status.memory_prediction_error(), 0.25, 0.01);
  EXPECT_GT(status.step_prediction_error(), 0);
  EXPECT_EQ(status.workers(1).memory_reserved_bytes(), 1 << 20);
  EXPECT_EQ(status.workers(1).fragmentation_ratio(), 0.25);
}

TEST_F(LifeTest, StepsThatContradictTheLinksOfThePlanHaveThemMeasuredAnewOnce) {
  describer_.MeasureTime(1e-6);
  options_.inventory = [] {
    NodeInventory inventory;
    for (const char* name : {"node-a", "node-b"}) {
      v1::NodeProfile& node = inventory.nodes.emplace_back();
      node.set_name(name);
      node.add_devices()->set_free_bytes(int64_t{8} << 30);
      node.mutable_devices(0)->set_cores(4);
    }
    v1::LinkProfile& link = inventory.links.emplace_back();
    link.set_node("node-a");
    link.set_peer("node-b");
    link.set_round_trip_seconds(0.001);
    link.set_bandwidth_bytes_per_second(1e9);
    link.set_receive_bandwidth_bytes_per_second(1e9);
    return inventory;
  };
  absl::Mutex mutex;
  std::vector<std::string> doubted;
  options_.links_doubted = [&](const std::string& node) {
    absl::MutexLock lock(&mutex);
    doubted.push_back(node);
  };
  RestartController();
  const std::string uid = Submit(Job("a"));
  const v1::Plan plan = store_->Plans(Key("a"))->back();
  ASSERT_EQ(plan.links_size(), 1);
  EXPECT_GT(plan.workers(0).communication_seconds(), 0);
  Train("a", uid, 1);
  EXPECT_THAT(launcher_.launches().at(0).nodes, testing::UnorderedElementsAre("node-a", "node-b"));
  for (int64_t step : {10, 20, 30}) {
    v1::WorkerUp up;
    up.mutable_progress()->set_step(step);
    up.mutable_progress()->set_step_seconds(10 * plan.predicted_step_seconds());
    controller_->WorkerMessage(Who(uid, 1, 0), up);
  }
  Await("a", [](const auto& j) { return j.status().step() == 30; });
  absl::MutexLock lock(&mutex);
  EXPECT_THAT(doubted, testing::UnorderedElementsAre("node-a", "node-b"));
  const auto events = EventReasons("a");
  EXPECT_EQ(std::count(events.begin(), events.end(), "LinksDoubted"), 1);
}

TEST_F(LifeTest, ValidationOnlyReturnsThePlanAndStoresNothing) {
  auto response = controller_->Create(Job("a"), "", true);
  ASSERT_OK(response);
  EXPECT_EQ(response->plan().workers_size(), 2);
  EXPECT_EQ(response->plan().total_steps(), 100);
  EXPECT_EQ(response->training_job().uid(), "");
  EXPECT_TRUE(absl::IsNotFound(store_->Get(Key("a")).status()));
  EXPECT_EQ(launcher_.launches().size(), 0u);
}

TEST_F(LifeTest, AJobThatDoesNotFitIsRefusedWithNumbersButCanBeExamined) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->mutable_resources()->set_memory_limit_bytes(1000);
  auto refused = controller_->Create(job, "", false);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_THAT(refused.status().message(), HasSubstr("bytes are missing"));
  auto examined = controller_->Create(job, "", true);
  ASSERT_OK(examined);
  EXPECT_THAT(examined->plan().fit(), HasSubstr("bytes are missing"));
}

// As when a thread that was preempted keeps a sum's memory for a moment.
TEST_F(LifeTest, APeakALittleAboveThePlanIsAsPlanned) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  const int64_t planned = Await("a", [](const auto& j) { return j.status().step() > 0; })
                              .status()
                              .workers(0)
                              .memory_predicted_bytes();
  v1::WorkerUp up;
  up.mutable_progress()->set_step(2);
  up.mutable_progress()->set_memory_peak_bytes(planned + 1'000'000);
  controller_->WorkerMessage(Who(uid, 1, 0), up);
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED);
  AwaitState("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(EventReasons("a"), ::testing::Not(::testing::Contains("PeakAbovePlan")));
}

TEST_F(LifeTest, APeakAboveThePlanIsToldAndTheNextPlanOfTheModelKnowsIt) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->mutable_resources()->set_memory_limit_bytes(100'000'000);
  const std::string uid = Submit(job);
  Train("a", uid, 1);
  const int64_t planned = Await("a", [](const auto& j) { return j.status().step() > 0; })
                              .status()
                              .workers(0)
                              .memory_predicted_bytes();
  v1::WorkerUp up;
  up.mutable_progress()->set_step(2);
  up.mutable_progress()->set_memory_peak_bytes(2 * planned);
  controller_->WorkerMessage(Who(uid, 1, 0), up);
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED);
  const v1::TrainingJob done = AwaitState("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(EventReasons("a"), ::testing::Contains("PeakAbovePlan"));
  EXPECT_THAT(done.status().notices(), ::testing::Contains(HasSubstr("100.0 % above its plan")));
  v1::TrainingJob next = job;
  next.set_name("b");
  const auto planned_again = controller_->Create(next, "", true);
  ASSERT_OK(planned_again);
  EXPECT_NEAR(static_cast<double>(planned_again->plan().memory_limit_bytes()), 100e6 / 2, 1e4);
  EXPECT_THAT(planned_again->plan().reason(), HasSubstr("100.0 % more than planned"));
}

TEST_F(LifeTest, TokensBecomeSteps) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->mutable_schedule()->clear_steps();
  job.mutable_spec()->mutable_schedule()->set_tokens(
      6401);  // 64 per step of 2 workers x 2 samples x 16 tokens
  auto response = controller_->Create(job, "", true);
  ASSERT_OK(response);
  EXPECT_EQ(response->plan().total_steps(), 101);
}

TEST_F(LifeTest, EpochsNeedDataOfKnownSize) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->mutable_schedule()->clear_steps();
  job.mutable_spec()->mutable_schedule()->set_epochs(2);
  auto response = controller_->Create(job, "", false);
  EXPECT_TRUE(absl::IsInvalidArgument(response.status())) << response.status();
  EXPECT_THAT(response.status().message(), HasSubstr("spec.schedule.epochs"));
}

TEST_F(LifeTest, TheDescribersErrorIsTheAnswer) {
  describer_.Fail(absl::InvalidArgumentError("model.preset: unknown"));
  EXPECT_EQ(controller_->Create(Job("a"), "", false).status(),
            absl::InvalidArgumentError("model.preset: unknown"));
}

TEST_F(LifeTest, ARepeatedRequestStartsNothingTwice) {
  auto first = controller_->Create(Job("a"), "id", false);
  auto second = controller_->Create(Job("a"), "id", false);
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_EQ(first->training_job().uid(), second->training_job().uid());
  AwaitState("a", v1::JOB_STATE_STARTING);
  AwaitTrue([&] { return launcher_.Running() == 2; });
  EXPECT_EQ(launcher_.launches().size(), 1u);
  EXPECT_TRUE(absl::IsAlreadyExists(controller_->Create(Job("a"), "", false).status()));
}

TEST_F(LifeTest, ARepeatedRequestIsAnsweredWithoutDescribingTheModelAgain) {
  ASSERT_OK(controller_->Create(Job("a"), "id", false));
  const int calls = describer_.calls();
  EXPECT_OK(controller_->Create(Job("a"), "id", false));
  const absl::Status other = controller_->Create(Job("b"), "id", false).status();
  EXPECT_TRUE(other.GetPayload(kRequestIdReusedPayload).has_value()) << other;
  EXPECT_EQ(describer_.calls(), calls);
}

TEST_F(LifeTest, AJobWhoseCallerLeftWhileItWasPlannedIsNotStored) {
  EXPECT_TRUE(absl::IsCancelled(controller_->Create(Job("a"), "", false, [] { return true; }).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Get(Key("a")).status()));
}

TEST_F(LifeTest, LaunchesCarryThreadsEnvironmentAndAPrivateToken) {
  v1::TrainingJob job = Job("a");
  (*job.mutable_spec()->mutable_env())["X"] = "1";
  const std::string uid = Submit(job);
  AwaitTrue([&] { return launcher_.Running() == 2; });
  const LaunchRequest request = launcher_.launches().at(0);
  EXPECT_EQ(request.cpu_threads, 2) << "4 cores over 2 workers";
  EXPECT_EQ(request.env.at("X"), "1");
  EXPECT_EQ(request.scheduler, "127.0.0.1:1");
  struct stat info;
  ASSERT_EQ(::stat(request.token_file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  auto token = controller_->WorkerToken(uid, 1);
  ASSERT_OK(token);
  std::string written;
  std::ifstream(request.token_file) >> written;
  EXPECT_EQ(*token, written);
  EXPECT_EQ(token->size(), 64u);
  EXPECT_TRUE(absl::IsNotFound(controller_->WorkerToken(uid, 2).status()));
  EXPECT_TRUE(absl::IsNotFound(controller_->WorkerToken("../" + uid, 1).status()));
}

TEST_F(LifeTest, WorkersOfTheWrongEpochRankOrJobAreRefused) {
  const std::string uid = Submit(Job("a"));
  AwaitTrue([&] { return launcher_.Running() == 2; });
  auto sink = std::make_shared<ScriptedSink>();
  const auto connect = [&](const std::string& job, int epoch, int rank) {
    v1::Hello hello;
    *hello.mutable_identity() = Who(job, epoch, rank);
    return controller_->WorkerConnected(hello, sink);
  };
  EXPECT_TRUE(absl::IsAborted(connect(uid, 0, 0)));
  EXPECT_TRUE(absl::IsAborted(connect(uid, 2, 0)));
  EXPECT_TRUE(absl::IsInvalidArgument(connect(uid, 1, 2)));
  EXPECT_TRUE(absl::IsInvalidArgument(connect(uid, 1, -1)));
  EXPECT_TRUE(absl::IsNotFound(connect("nobody", 1, 0)));
  EXPECT_EQ(sink->assignments(), 0);
}

TEST_F(LifeTest, AReconnectReplacesTheOldStream) {
  const std::string uid = Submit(Job("a"));
  auto sinks = Train("a", uid, 1);
  auto newer = Connect(uid, 1, 0, /*step=*/1);
  EXPECT_TRUE(absl::IsUnavailable(sinks[0]->AwaitClose()));
  controller_->WorkerDisconnected(Who(uid, 1, 0), sinks[0]);  // late, and of no effect
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED);
  EXPECT_OK(newer->AwaitClose());
  EXPECT_EQ(newer->assignments(), 0);
  AwaitState("a", v1::JOB_STATE_SUCCEEDED);
}

TEST_F(LifeTest, AFinishedJobIsDeletedAfterItsTimeToLive) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->mutable_ttl_after_finished()->set_seconds(60);
  const std::string uid = Submit(job);
  Train("a", uid, 1);
  FinishAll(uid, 1, v1::WORKER_OUTCOME_COMPLETED);
  AwaitState("a", v1::JOB_STATE_SUCCEEDED);
  Advance(absl::Seconds(61));
  AwaitTrue([&] { return absl::IsNotFound(store_->Get(Key("a")).status()); });
}

}  // namespace
}  // namespace tessera::scheduler

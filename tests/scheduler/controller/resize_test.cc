// Another number of workers, other priorities, and jobs that begin where others ended.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "proto/tessera/v1/violation.h"
#include "tests/scheduler/controller/controller_harness.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class ResizeTest : public ControllerHarness {
 protected:
  static auto HasWorkers(int count) {
    return [count](const v1::TrainingJob& job) {
      return job.spec().workers().count() == count && job.status().workers_size() == count &&
             job.status().state() == v1::JOB_STATE_STARTING;
    };
  }
};

TEST_F(ResizeTest, ARunningJobStopsAtACheckpointAndGoesOnWithTheNewWorkers) {
  const std::string uid = Submit(Job("a"));
  auto sinks = Train("a", uid, 1);
  ASSERT_OK(controller_->Resize(Key("a"), "", 3));
  for (auto& sink : sinks) {
    const v1::Stop stop = sink->AwaitStop();
    EXPECT_TRUE(stop.checkpoint());
    EXPECT_EQ(stop.reason(), "resized");
  }
  FinishAll(uid, 1, v1::WORKER_OUTCOME_STOPPED);
  Await("a", HasWorkers(3));
  const auto plans = store_->Plans(Key("a"));
  ASSERT_EQ(plans->size(), 2u);
  EXPECT_EQ(plans->back().generation(), 2);
  EXPECT_EQ(plans->back().workers_size(), 3);
  EXPECT_EQ(plans->back().reason(), "resized from 2 to 3 workers");
  auto again = ConnectAll(uid, 2, 3);
  const v1::Assignment assignment = again[2]->AwaitAssignment();
  EXPECT_EQ(assignment.world_size(), 3);
  EXPECT_EQ(assignment.plan().generation(), 2);
  EXPECT_THAT(EventReasons("a"), Contains("ResizeRequested"));
}

TEST_F(ResizeTest, ASuspendedJobStaysSuspendedAndStartsWithTheNewWorkers) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->set_suspend(true);
  Submit(job);
  AwaitState("a", v1::JOB_STATE_SUSPENDED);
  ASSERT_OK(controller_->Resize(Key("a"), "", 4));
  Await("a", [](const v1::TrainingJob& now) { return now.spec().workers().count() == 4; });
  EXPECT_EQ(launcher_.launches().size(), 0u);
  ASSERT_OK(controller_->Resume(Key("a")));
  Await("a", HasWorkers(4));
}

TEST_F(ResizeTest, SurvivesARestartOfTheSchedulerBeforeTheNewPlanIsMade) {
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  ASSERT_OK(controller_->Resize(Key("a"), "", 3));
  StopController();
  RestartController();
  ConnectAll(uid, 1, 2, 5);
  FinishAll(uid, 1, v1::WORKER_OUTCOME_STOPPED);
  Await("a", HasWorkers(3));
}

TEST_F(ResizeTest, WhatDoesNotFitIsRefusedAndNothingStops) {
  StopController();
  options_.memory_bytes = 700'000'000;
  RestartController();
  const std::string uid = Submit(Job("a"));
  Train("a", uid, 1);
  const auto refused = controller_->Resize(Key("a"), "", 64);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_EQ(Await("a", [](const auto&) { return true; }).status().state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(controller_->Resize(Key("a"), "old", 3).status().code(), absl::StatusCode::kAborted);
}

TEST_F(ResizeTest, ARunThatIsMeasuredInTokensKeepsItsLength) {
  v1::TrainingJob job = Job("a");
  job.mutable_spec()->mutable_schedule()->clear_steps();
  job.mutable_spec()->mutable_schedule()->set_tokens(1 << 20);
  Submit(job);
  const auto refused = controller_->Resize(Key("a"), "", 4);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("steps instead of"));
}

TEST_F(ResizeTest, AHigherPriorityIsAdmittedFirst) {
  StopController();
  options_.memory_bytes = 500'000'000;
  RestartController();
  Submit(Job("running"));
  AwaitState("running", v1::JOB_STATE_STARTING);
  Submit(Job("first"));
  Submit(Job("second"));
  ASSERT_OK(controller_->Update(Key("second"), "", [](v1::TrainingJobSpec* spec) { spec->set_priority(5); }));
  ASSERT_OK(controller_->Cancel(Key("running")));
  AwaitState("second", v1::JOB_STATE_STARTING);
  EXPECT_EQ(Await("first", [](const auto&) { return true; }).status().state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(EventReasons("second"), Contains("Updated"));
}

TEST_F(ResizeTest, AJobBeginsAtTheCheckpointOfAnEndedOne) {
  v1::TrainingJob job = Job("a");
  const std::string folder = (folder_ / "step-00000007").string();
  job.mutable_spec()->mutable_checkpoint()->set_resume_from(folder);
  const auto fault = [&] {
    const auto violations = spec::ViolationsFrom(controller_->Create(job, "", false).status());
    return violations.empty() ? "" : violations[0].path + " " + violations[0].message;
  };
  EXPECT_EQ(fault(), "spec.checkpoint.resumeFrom is no complete checkpoint");
  const auto plan = controller_->Create(Job("b"), "", true)->plan();
  std::filesystem::create_directories(folder);
  const auto write = [&](uint64_t shape, int step) {
    std::ofstream(folder + "/manifest.json")
        << absl::StrFormat(R"({"step": %d, "shape_fingerprint": "%016x"})", step, shape);
  };
  write(1, 7);
  EXPECT_EQ(fault(), "spec.checkpoint.resumeFrom is of another model");
  write(plan.inputs().shape_fingerprint(), 100);
  EXPECT_THAT(fault(), HasSubstr("is at step 100, and this job has 100 steps"));
  write(plan.inputs().shape_fingerprint(), 7);
  const std::string uid = Submit(job);
  AwaitState("a", v1::JOB_STATE_STARTING);
  EXPECT_EQ(Connect(uid, 1, 0)->AwaitAssignment().resume_from(), folder);
}

}  // namespace
}  // namespace tessera::scheduler

#include <filesystem>

#include "gmock/gmock.h"
#include "services/cli/exit_code.h"
#include "tests/services/cli/fake_service.h"

namespace tessera::cli {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class Train : public CommandTest {
 protected:
  void Succeed() {
    service_.on_watched = [this](const std::string& name) {
      service_.SetState(name, v1::JOB_STATE_SUCCEEDED, 100);
    };
  }
};

TEST_F(Train, SubmitsWatchesAndReports) {
  Succeed();
  EXPECT_EQ(Run({"train", job_file_, "--workers", "2", "--steps", "7", "--no-sample"}), kSucceeded) << err();
  EXPECT_EQ(service_.Find("small")->spec().workers().count(), 2);
  EXPECT_EQ(service_.Find("small")->spec().schedule().steps(), 7);
  EXPECT_THAT(err(), HasSubstr("submitted small: llama-1m, 2 workers"));
  EXPECT_THAT(out(), HasSubstr("small SUCCEEDED"));
  EXPECT_THAT(out(), HasSubstr("tessera get small"));
}

TEST_F(Train, EndsInASampleOfTheExportedModel) {
  const std::string worker = Write("tessera-worker", "");
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  service_.on_watched = [this](const std::string&) {
    v1::TrainingJob job = StoredJob(v1::JOB_STATE_SUCCEEDED, 100);
    job.mutable_status()->set_exported_model("/jobs/export");
    service_.Put(job);
  };
  EXPECT_EQ(Run({"train", job_file_}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("a sample of what it writes"));
  ASSERT_GE(executed_.size(), 4);
  EXPECT_THAT(std::vector(executed_.begin(), executed_.begin() + 4),
              ElementsAre(worker, "generate", "--model", "/jobs/export"));
}

TEST_F(Train, DetachReturnsAtOnce) {
  EXPECT_EQ(Run({"train", job_file_, "--detach"}), kSucceeded);
  EXPECT_THAT(service_.calls(), Not(Contains("Watch small")));
}

TEST_F(Train, AnInterruptDuringSubmissionLeavesNoJobThatRunsUnattended) {
  service_.on_created = [this](const std::string&) { interrupts_.Interrupt(); };  // stored all the same
  EXPECT_EQ(Run({"train", job_file_}), kInterrupted);
  EXPECT_THAT(err(), HasSubstr("interrupted; the job was not started"));
  EXPECT_THAT(service_.calls(), Contains("Cancel small"));
  EXPECT_THAT(service_.calls(), Not(Contains("Watch small")));
}

TEST_F(Train, InterruptOnceSuspendsAndSaysHowToGoOn) {
  service_.on_watched = [this](const std::string&) { interrupts_.Interrupt(); };
  service_.on_suspended = [this](const std::string& name) {
    service_.SetState(name, v1::JOB_STATE_SUSPENDED, 42);
  };
  EXPECT_EQ(Run({"train", job_file_}), kSuspended);
  EXPECT_THAT(service_.calls(), Contains("Suspend small"));
  EXPECT_THAT(err(), HasSubstr("suspended at step 42. Go on: tessera train " + job_file_));
}

TEST_F(Train, InterruptTwiceLeavesAtOnce) {
  service_.on_watched = [this](const std::string&) { interrupts_.Interrupt(); };
  service_.on_suspended = [this](const std::string&) { interrupts_.Interrupt(); };  // and it never ends
  EXPECT_EQ(Run({"train", job_file_}), kInterrupted);
  EXPECT_THAT(err(), HasSubstr("still stopping"));
  EXPECT_THAT(err(), HasSubstr("tessera watch small"));
}

TEST_F(Train, ASuspendedJobIsResumed) {
  service_.Put(StoredJob(v1::JOB_STATE_SUSPENDED, 42));
  // SUSPENDED is still seen by the watch that follows the call.
  service_.on_watched = [this](const std::string& name) {
    service_.SetState(name, v1::JOB_STATE_SUCCEEDED, 100);
  };
  EXPECT_EQ(Run({"train", job_file_, "--no-sample"}), kSucceeded) << err();
  EXPECT_THAT(service_.calls(), Contains("Resume small"));
  EXPECT_THAT(service_.calls(), Not(Contains("Create small")));
  EXPECT_THAT(err(), HasSubstr("resuming small from step 42"));
}

TEST_F(Train, ARunningJobIsWatched) {
  service_.Put(StoredJob(v1::JOB_STATE_RUNNING, 42));
  Succeed();
  EXPECT_EQ(Run({"train", job_file_, "--no-sample"}), kSucceeded);
  EXPECT_THAT(err(), HasSubstr("runs already"));
}

TEST_F(Train, AJobWithOtherSettingsIsNotTouched) {
  service_.Put(StoredJob(v1::JOB_STATE_SUSPENDED, 42));
  EXPECT_EQ(Run({"train", job_file_, "--steps", "500"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("spec.schedule.steps: 100, asked for 500"));
  EXPECT_THAT(err(), HasSubstr("--fresh"));
  EXPECT_THAT(service_.calls(), ElementsAre("Get small"));
}

TEST_F(Train, ASucceededJobNeedsFresh) {
  service_.Put(StoredJob(v1::JOB_STATE_SUCCEEDED, 100));
  EXPECT_EQ(Run({"train", job_file_}), kSucceeded);
  EXPECT_THAT(err(), HasSubstr("has succeeded already"));
  EXPECT_THAT(service_.calls(), Not(Contains("Create small")));
}

TEST_F(Train, FreshDeletesTheOldJobFirst) {
  service_.Put(StoredJob(v1::JOB_STATE_SUCCEEDED, 100));
  Succeed();
  EXPECT_EQ(Run({"train", job_file_, "--fresh", "--steps", "5", "--no-sample"}), kSucceeded);
  EXPECT_THAT(service_.calls(), Contains("Delete small"));
  EXPECT_EQ(service_.Find("small")->spec().schedule().steps(), 5);
}

TEST_F(Train, AFailedJobGoesOnWhereTheServiceCan) {
  service_.Put(StoredJob(v1::JOB_STATE_FAILED, 42));
  service_.resume_terminal = true;
  service_.on_resumed = [this](const std::string& name) {
    service_.SetState(name, v1::JOB_STATE_SUCCEEDED, 100);
  };
  EXPECT_EQ(Run({"train", job_file_, "--no-sample"}), kSucceeded);
  EXPECT_THAT(service_.calls(), Not(Contains("Delete small")));
}

TEST_F(Train, AFailedJobBeginsAnewWhereTheServiceCannot) {
  service_.Put(StoredJob(v1::JOB_STATE_FAILED, 42));
  Succeed();
  EXPECT_EQ(Run({"train", job_file_, "--no-sample"}), kSucceeded);
  EXPECT_THAT(service_.calls(), Contains("Delete small"));
  EXPECT_THAT(service_.calls(), Contains("Create small"));
  EXPECT_THAT(err(), HasSubstr("beginning anew"));
}

TEST_F(Train, CheckpointsOfAFailedJobAreNotDeletedUnasked) {
  v1::TrainingJob failed = StoredJob(v1::JOB_STATE_FAILED, 42);
  failed.mutable_status()->set_checkpoint("/kept/step-00000040");
  service_.Put(failed);
  EXPECT_EQ(Run({"train", job_file_, "--no-sample"}), kUsage);
  EXPECT_THAT(service_.calls(), Not(Contains("Delete small")));
  EXPECT_THAT(err(), HasSubstr("/kept/step-00000040"));
  EXPECT_THAT(err(), HasSubstr("--fresh"));
}

TEST_F(Train, AFailureExitsWithOneAndShowsTheReason) {
  service_.on_watched = [this](const std::string&) {
    v1::TrainingJob job = StoredJob(v1::JOB_STATE_FAILED, 3);
    job.mutable_status()->set_reason("WorkerFailed");
    job.mutable_status()->set_message("rank 1 was killed by signal 9");
    service_.Put(job);
  };
  EXPECT_EQ(Run({"train", job_file_}), kFailed);
  EXPECT_THAT(out(), HasSubstr("rank 1 was killed by signal 9"));
}

}  // namespace
}  // namespace tessera::cli

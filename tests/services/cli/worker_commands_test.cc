#include <filesystem>

#include "gmock/gmock.h"
#include "services/cli/exit_code.h"
#include "tests/services/cli/fake_service.h"

namespace tessera::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class WorkerCommands : public CommandTest {
 protected:
  void Install() {
    worker_ = Write("tessera-worker", "");
    std::filesystem::permissions(worker_, std::filesystem::perms::owner_all);
  }
  std::string worker_;
};

TEST_F(WorkerCommands, ArgumentsArePassedAsTheyAre) {
  Install();
  EXPECT_EQ(RunWithoutAddress({"data", "prepare", "--input", "a b", "--out", "x", "-o", "y", "--help"}),
            kSucceeded);
  EXPECT_THAT(executed_,
              ElementsAre(worker_, "prepare", "--input", "a b", "--out", "x", "-o", "y", "--help"));
  EXPECT_EQ(RunWithoutAddress({"generate", "--model", "m", "--prompt", "The "}), kSucceeded);
  EXPECT_THAT(executed_, ElementsAre(worker_, "generate", "--model", "m", "--prompt", "The "));
}

TEST_F(WorkerCommands, HelpSaysThatAJobWillDo) {
  Install();
  EXPECT_EQ(RunWithoutAddress({"generate", "--help"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("tessera generate JOB|DIR"));
  EXPECT_THAT(out(), HasSubstr("Example"));
  EXPECT_THAT(executed_, ElementsAre(worker_, "generate", "--help"));
}

TEST_F(WorkerCommands, AJobStandsForItsFolder) {
  Install();
  v1::TrainingJob job = StoredJob(v1::JOB_STATE_SUCCEEDED, 100);
  job.mutable_spec()->mutable_data()->set_validation("/data/validation.bin");
  job.mutable_spec()->mutable_data()->set_sequence_length(64);
  job.mutable_spec()->mutable_evaluation()->set_tokens(2048);
  job.mutable_status()->set_exported_model("/jobs/export");
  job.mutable_status()->set_checkpoint("/jobs/checkpoint");
  service_.Put(job);
  EXPECT_EQ(Run({"generate", "small", "--prompt", "The"}), kSucceeded) << err();
  EXPECT_THAT(executed_, ElementsAre(worker_, "generate", "--model", "/jobs/export", "--prompt", "The"));
  EXPECT_EQ(Run({"eval", "small"}), kSucceeded);
  EXPECT_THAT(executed_, ElementsAre(worker_, "eval", "--model", "/jobs/export", "--data",
                                     "/data/validation.bin", "--sequence-length", "64", "--tokens", "2048"));
  EXPECT_EQ(Run({"eval", "small", "--data", "other.bin", "--tokens=7"}), kSucceeded);
  EXPECT_THAT(executed_, ElementsAre(worker_, "eval", "--model", "/jobs/export", "--data", "other.bin",
                                     "--tokens=7", "--sequence-length", "64"));
  EXPECT_EQ(Run({"export", "small", "--out", "x"}), kSucceeded);
  EXPECT_THAT(executed_, ElementsAre(worker_, "export", "--checkpoint", "/jobs/checkpoint", "--out", "x"));
}

TEST_F(WorkerCommands, AFolderIsToldFromAJobByItsSlashAndNeedsNoService) {
  Install();
  EXPECT_EQ(RunWithoutAddress({"eval", "./out", "--data", "d"}), kSucceeded);
  EXPECT_THAT(executed_, ElementsAre(worker_, "eval", "--model", "./out", "--data", "d"));
  EXPECT_EQ(RunWithoutAddress({"export", "runs/step-00000100", "--out", "x"}), kSucceeded);
  EXPECT_THAT(executed_, ElementsAre(worker_, "export", "--checkpoint", "runs/step-00000100", "--out", "x"));
}

TEST_F(WorkerCommands, WithoutArgumentsItAsksForAJobOrAFolder) {
  Install();
  EXPECT_EQ(RunWithoutAddress({"generate"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("tessera generate JOB|DIR"));
}

TEST_F(WorkerCommands, AJobWithoutAModelIsNotRun) {
  Install();
  service_.Put(StoredJob(v1::JOB_STATE_RUNNING, 3));
  EXPECT_EQ(Run({"generate", "small"}), kFailed);
  EXPECT_THAT(err(), HasSubstr("no exported model and no checkpoint yet"));
}

TEST_F(WorkerCommands, ACheckpointStandsForTheModelOfAJobThatHasNone) {
  Install();
  v1::TrainingJob job = StoredJob(v1::JOB_STATE_RUNNING, 3);
  job.mutable_status()->set_checkpoint("runs/step-00000003");
  service_.Put(job);
  EXPECT_EQ(Run({"generate", "small"}), kSucceeded);
  EXPECT_THAT(executed_, ElementsAre(worker_, "generate", "--model", "runs/step-00000003"));
}

TEST_F(WorkerCommands, AMissingProgramIsNamedWithWhereItWasLookedFor) {
  EXPECT_EQ(RunWithoutAddress({"data", "prepare", "--input", "x"}), kFailed);
  EXPECT_THAT(err(), HasSubstr("tessera-worker"));
  EXPECT_THAT(err(), HasSubstr(folder_));
}

}  // namespace
}  // namespace tessera::cli

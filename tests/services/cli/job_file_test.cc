#include "services/cli/job_file.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/tessera/v1/violation.h"
#include "tests/status.h"

namespace tessera::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kJob = R"(
name: small
spec:
  model: {preset: llama-1m}
  data: {train: data/train.bin}
  schedule: {steps: 100}
)";

class JobFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/job_file_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = std::filesystem::canonical(pattern).string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<v1::TrainingJob> Load(const std::string& text, std::vector<std::string> sets = {}) {
    const std::string path = folder_ + "/job.yaml";
    std::ofstream(path) << text;
    return LoadJobFile(path, {.working_directory = "/cwd", .sets = std::move(sets)});
  }

  // Path, message and remedy of the only violation.
  std::string Complaint(const std::string& assignment) {
    const auto job = Load(kJob, {assignment});
    if (job.ok()) return "accepted";
    const auto violations = spec::ViolationsFrom(job.status());
    return violations.size() == 1 ? spec::ToLine(violations[0]) : std::string(job.status().message());
  }

  std::string folder_;
};

TEST_F(JobFile, RelativePathsStartAtTheFileOrForSetAtTheWorkingDirectory) {
  const auto job = Load(kJob, {"spec.data.validation=data/validation.bin"});
  ASSERT_OK(job);
  EXPECT_EQ(job->spec().data().train(), folder_ + "/data/train.bin");
  EXPECT_EQ(job->spec().data().validation(), "/cwd/data/validation.bin");
}

TEST_F(JobFile, AddressesAndAbsolutePathsStay) {
  const auto job = Load(kJob, {"spec.data.train=/data/a.bin", "spec.data.validation=file:///data/b.bin",
                               "spec.checkpoint.uri=s3://bucket/run"});
  ASSERT_OK(job);
  EXPECT_EQ(job->spec().data().validation(), "/data/b.bin");
  EXPECT_EQ(job->spec().data().train(), "/data/a.bin");
  EXPECT_EQ(job->spec().checkpoint().uri(), "s3://bucket/run");
}

TEST_F(JobFile, SetTakesBothSpellingsAndEveryKindOfValue) {
  const auto job =
      Load(kJob, {"spec.schedule.steps=200", "spec.subnetwork.min_holders=2", "spec.subnetwork.minGap=0.25",
                  "spec.subnetwork.scheme=size_aware", "spec.subnetwork.ends_always_on=false",
                  "spec.resources.memory_limit_bytes=512MiB", "spec.deadlines.start=30s", "spec.env.A=1=2",
                  "spec.queue=\"7\"", "name=other"});
  ASSERT_OK(job);
  const auto& spec = job->spec();
  EXPECT_EQ(spec.schedule().steps(), 200);
  EXPECT_EQ(spec.subnetwork().min_holders(), 2);
  EXPECT_EQ(spec.subnetwork().min_gap(), 0.25);
  EXPECT_EQ(spec.subnetwork().scheme(), v1::MASK_SCHEME_SIZE_AWARE);
  EXPECT_TRUE(spec.subnetwork().has_ends_always_on());
  EXPECT_FALSE(spec.subnetwork().ends_always_on());
  EXPECT_EQ(spec.resources().memory_limit_bytes(), int64_t{512} << 20);
  EXPECT_EQ(spec.deadlines().start().seconds(), 30);
  EXPECT_EQ(spec.env().at("A"), "1=2");
  EXPECT_EQ(spec.queue(), "7");
  EXPECT_EQ(job->name(), "other");
}

TEST_F(JobFile, NullTakesAFieldOut) {
  const auto job = Load(kJob, {"spec.schedule.steps=null", "spec.schedule.tokens=5000"});
  ASSERT_OK(job);
  EXPECT_FALSE(job->spec().schedule().has_steps());
  EXPECT_EQ(job->spec().schedule().tokens(), 5000);
}

TEST_F(JobFile, LaterAssignmentsWin) {
  const auto job = Load(kJob, {"spec.schedule.steps=200", "spec.schedule.steps=300"});
  ASSERT_OK(job);
  EXPECT_EQ(job->spec().schedule().steps(), 300);
}

TEST_F(JobFile, SetComplaintsNameTheFieldAndTheRemedy) {
  EXPECT_THAT(Complaint("spec.schedule.steps"), HasSubstr("has no '='"));
  EXPECT_THAT(Complaint("schedule.steps=3"), HasSubstr("use spec.schedule.steps"));
  EXPECT_THAT(Complaint("spec.schedule.stepps=3"), HasSubstr("there is no field 'stepps'"));
  EXPECT_THAT(Complaint("spec.schedule.stepps=3"), HasSubstr("steps, tokens, epochs"));
  EXPECT_THAT(Complaint("spec.schedule.steps.more=3"),
              HasSubstr("spec.schedule.steps is not a group of fields"));
  EXPECT_THAT(Complaint("spec.schedule.steps=many"), HasSubstr("spec.schedule.steps"));
  EXPECT_THAT(Complaint("spec.schedule.steps={"), HasSubstr("is not YAML"));
}

TEST_F(JobFile, FaultsOfTheFileComeWithTheirLine) {
  const auto job = Load("name: small\nspec:\n  modell: {preset: llama-1m}\n");
  ASSERT_FALSE(job.ok());
  const auto violations = spec::ViolationsFrom(job.status());
  ASSERT_EQ(violations.size(), 1);
  EXPECT_EQ(violations[0].line, 3);
}

TEST_F(JobFile, AMissingFileIsNamed) {
  const auto job = LoadJobFile(folder_ + "/none.yaml", {});
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("/none.yaml"));
}

TEST_F(JobFile, OnlyWhatIsAskedForIsCompared) {
  const v1::TrainingJob wanted = *Load(kJob);
  v1::TrainingJob existing = wanted;
  existing.mutable_spec()->mutable_workers()->set_count(4);
  EXPECT_THAT(Differences(wanted, existing), IsEmpty());
  existing.mutable_spec()->mutable_schedule()->set_steps(300);
  EXPECT_THAT(Differences(wanted, existing), ElementsAre("spec.schedule.steps: 300, asked for 100"));
}

}  // namespace
}  // namespace tessera::cli

#include "scheduler/launch/worker_describer.h"
#include "tests/patience.h"
#include "tests/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace tessera::scheduler {
namespace {

using ::testing::HasSubstr;

class WorkerDescriberTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera-describe-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  absl::StatusOr<v1::ModelShape> Describe(const std::string& script, const v1::TrainingJobSpec& spec = {}) {
    WorkerDescriberOptions options;
    options.worker_program = "/bin/sh";
    options.arguments = {"-c", script};
    options.cache_directory = (folder_ / "shapes").string();
    options.timeout = timeout_;
    return MakeWorkerDescriber(options)->Describe(spec);
  }

  std::filesystem::path folder_;
  absl::Duration timeout_ = kPatience;
};

constexpr char kAnswer[] =
    R"(echo '{"model":"llama","parameters":[{"name":"w","dims":["2","3"],"block":-1}],"aNewField":1}')";

TEST_F(WorkerDescriberTest, TheSpecGoesInAndTheShapeComesOut) {
  v1::TrainingJobSpec spec;
  spec.mutable_model()->set_preset("llama-8m");
  auto shape = Describe("cat > " + (folder_ / "in").string() + "; " + kAnswer, spec);
  ASSERT_OK(shape);
  EXPECT_EQ(shape->model(), "llama");
  ASSERT_EQ(shape->parameters_size(), 1);
  EXPECT_EQ(shape->parameters(0).dims(1), 3);
  std::ifstream in(folder_ / "in");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(in), {}), HasSubstr("\"preset\":\"llama-8m\""));
}

TEST_F(WorkerDescriberTest, AnswersAreCachedByWhatTheyDependOn) {
  const std::string counting = "echo x >> " + (folder_ / "calls").string() + "; " + kAnswer;
  v1::TrainingJobSpec spec;
  spec.mutable_workers()->set_batch(2);
  const auto calls = [&] {
    std::ifstream in(folder_ / "calls");
    return std::string(std::istreambuf_iterator<char>(in), {}).size() / 2;
  };
  ASSERT_OK(Describe(counting, spec));
  spec.set_priority(5);  // no influence
  ASSERT_OK(Describe(counting, spec));
  EXPECT_EQ(calls(), 1u);
  spec.mutable_workers()->set_batch(4);
  ASSERT_OK(Describe(counting, spec));
  EXPECT_EQ(calls(), 2u);
  spec.mutable_resources()->set_gpus(1);  // a job for a GPU is no job for the CPU
  ASSERT_OK(Describe(counting, spec));
  EXPECT_EQ(calls(), 3u);
}

TEST_F(WorkerDescriberTest, TheLastLineOfErrorsIsTheErrorWithItsCode) {
  auto status = Describe("echo noise >&2; echo 'NOT_FOUND: model.preset: no preset x' >&2; exit 1").status();
  EXPECT_EQ(status, absl::InvalidArgumentError("model.preset: no preset x"))
      << "the job is not what is missing";
  EXPECT_EQ(Describe("echo 'bad: thing' >&2; echo >&2; exit 3").status(),
            absl::InvalidArgumentError("bad: thing"));
  status = Describe("echo boom >&2; exit 9").status();
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_THAT(status.message(), HasSubstr("exit code 9: boom"));
}

TEST_F(WorkerDescriberTest, AnswersThatAreNoShapeAreErrorsAndNotCached) {
  EXPECT_TRUE(absl::IsInternal(Describe("echo hello").status()));
  EXPECT_TRUE(absl::IsInternal(Describe("echo '{}'").status()));
  EXPECT_OK(Describe(kAnswer));
}

TEST_F(WorkerDescriberTest, AHangingWorkerIsGivenUp) {
  timeout_ = absl::Milliseconds(50);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Describe("sleep 1000").status()));
}

}  // namespace
}  // namespace tessera::scheduler

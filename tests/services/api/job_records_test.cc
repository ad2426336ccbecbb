#include "services/api/job_records.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "tests/services/job_builder.h"

namespace tessera::services {
namespace {

class JobRecords : public testing::Test {
 protected:
  JobRecords() {
    char pattern[] = "/tmp/tessera-records-XXXXXX";
    folder_ = mkdtemp(pattern);
    job_ = SmallJob("tiny");
    job_.mutable_status()->set_run_directory(folder_);
  }
  ~JobRecords() override { std::filesystem::remove_all(folder_); }
  void WriteSteps(int steps) {
    std::ofstream file(folder_ + "/metrics.jsonl");
    file << R"({"step":0,"validation_loss":9.5})"
         << "\n";
    for (int step = 1; step <= steps; ++step) {
      file << R"({"step":)" << step << R"(,"loss":)" << 10.0 / step << R"(,"slowest_rank":1,"unknown":[1]})"
           << "\n";
      if (step % 10 == 0)
        file << R"({"step":)" << step << R"(,"validation_loss":2})"
             << "\n";
    }
    file << R"({"step":999,"lo)";  // being written
  }
  std::string folder_;
  v1::TrainingJob job_;
  v1::GetMetricsRequest request_;
};

TEST_F(JobRecords, OfAJobThatHasNotRunAreEmpty) {
  EXPECT_EQ(ReadMetrics(job_, request_)->points_size(), 0);
  EXPECT_EQ(FindJobCheckpoints(job_).checkpoints_size(), 0);
}

TEST_F(JobRecords, PointsAfterAStepJoinToTheCurve) {
  WriteSteps(25);
  const auto all = ReadMetrics(job_, request_);
  ASSERT_EQ(all->points_size(), 28);
  EXPECT_EQ(all->last_step(), 25);
  EXPECT_EQ(all->points(0).validation_loss(), 9.5);
  EXPECT_FALSE(all->points(0).has_loss());
  EXPECT_EQ(all->points(1).loss(), 10.0);
  EXPECT_EQ(all->points(1).slowest_rank(), 1);
  request_.set_after_step(20);
  EXPECT_EQ(ReadMetrics(job_, request_)->points_size(), 5);
  request_.set_after_step(25);
  EXPECT_EQ(ReadMetrics(job_, request_)->points_size(), 0);
  EXPECT_EQ(ReadMetrics(job_, request_)->last_step(), 25);
}

TEST_F(JobRecords, ThinnedCurvesKeepTheNewestStepAndEveryEvaluation) {
  WriteSteps(1000);
  request_.set_max_points(50);
  const auto thin = ReadMetrics(job_, request_);
  int evaluations = 0;
  for (const auto& point : thin->points()) evaluations += point.has_validation_loss();
  EXPECT_EQ(evaluations, 101);
  EXPECT_LE(thin->points_size() - evaluations, 50);
  EXPECT_EQ(thin->last_step(), 1000);
  request_.set_max_points(-1);
  EXPECT_EQ(ReadMetrics(job_, request_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobRecords, OnlyWholeCheckpointsAreListed) {
  for (const char* step : {"step-00000010", "step-00000002", "step-00000020.tmp", "step-00000030"})
    std::filesystem::create_directories(folder_ + "/checkpoints/" + step);
  for (const char* step : {"step-00000010", "step-00000002"}) {
    std::ofstream(folder_ + "/checkpoints/" + step + "/manifest.json")
        << R"({"workers":4,"files":[{"bytes":1000}]})";
  }
  const auto found = FindJobCheckpoints(job_);
  ASSERT_EQ(found.checkpoints_size(), 2);
  EXPECT_EQ(found.checkpoints(0).step(), 2);
  EXPECT_EQ(found.checkpoints(1).step(), 10);
  EXPECT_EQ(found.checkpoints(1).workers(), 4);
  EXPECT_GT(found.checkpoints(1).bytes(), 1000);
  EXPECT_GT(found.checkpoints(1).create_time().seconds(), 0);
}

}  // namespace
}  // namespace tessera::services

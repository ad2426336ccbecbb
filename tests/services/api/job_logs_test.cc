#include "services/api/job_logs.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "scheduler/launch/log_bound.h"
#include "tests/services/job_builder.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

class JobLogs : public testing::Test {
 protected:
  JobLogs() {
    char pattern[] = "/tmp/tessera-logs-XXXXXX";
    folder_ = mkdtemp(pattern);
    std::filesystem::create_directories(folder_ + "/logs");
    job_ = SmallJob("tiny");
    job_.mutable_spec()->mutable_workers()->set_count(2);
    job_.mutable_status()->set_run_directory(folder_);
    job_.mutable_status()->set_epoch(2);
    job_.mutable_status()->set_state(v1::JOB_STATE_RUNNING);
  }
  ~JobLogs() override { std::filesystem::remove_all(folder_); }
  void Write(int epoch, int rank, const std::string& text) {
    std::ofstream(folder_ + "/logs/epoch-" + std::to_string(epoch) + "-rank-" + std::to_string(rank) + ".log")
        << text;
  }
  std::string folder_;
  v1::TrainingJob job_;
  v1::GetLogsRequest request_;
};

TEST_F(JobLogs, AreReadInSlicesThatJoin) {
  const std::string text = "one\ntwö\nthree €\n";
  Write(2, 0, text);
  job_.mutable_status()->set_state(v1::JOB_STATE_SUCCEEDED);
  for (int limit = 4; limit < 20; ++limit) {
    std::string joined;
    request_.set_limit_bytes(limit);
    request_.set_offset(0);
    bool complete = false;
    while (!complete) {
      const auto slice = ReadLogs(job_, request_);
      ASSERT_OK(slice);
      ASSERT_TRUE(slice->complete() || slice->next_offset() > request_.offset());
      joined += slice->text();
      request_.set_offset(slice->next_offset());
      complete = slice->complete();
    }
    EXPECT_EQ(joined, text) << limit;
  }
}

TEST_F(JobLogs, OfARunningJobAreNeverComplete) {
  Write(2, 0, "x\n");
  EXPECT_FALSE(ReadLogs(job_, request_)->complete());
  EXPECT_EQ(ReadLogs(job_, request_)->next_offset(), 2);
  request_.set_epoch(1);  // an older group writes nothing more
  Write(1, 0, "y\n");
  EXPECT_TRUE(ReadLogs(job_, request_)->complete());
}

TEST_F(JobLogs, BytesThatAreNoTextAreReplaced) {
  Write(2, 1, "a\xff\xc3(b");
  request_.set_rank(1);
  EXPECT_EQ(ReadLogs(job_, request_)->text(), "a\xEF\xBF\xBD\xEF\xBF\xBD(b");
}

TEST_F(JobLogs, OfAWorkerThatHasWrittenNothingAreEmpty) {
  const auto logs = ReadLogs(job_, request_);
  ASSERT_OK(logs);
  EXPECT_EQ(logs->text(), "");
  EXPECT_FALSE(logs->complete());
}

TEST_F(JobLogs, OfWhatNeverWasAreNotFound) {
  request_.set_rank(2);
  EXPECT_EQ(ReadLogs(job_, request_).status().code(), absl::StatusCode::kNotFound);
  request_.set_rank(0);
  request_.set_epoch(3);
  EXPECT_EQ(ReadLogs(job_, request_).status().code(), absl::StatusCode::kNotFound);
  request_.set_epoch(-1);
  EXPECT_EQ(ReadLogs(job_, request_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobLogs, AnOffsetBeyondTheEndIsOutOfRange) {
  Write(2, 0, "abc");
  request_.set_offset(4);
  EXPECT_EQ(ReadLogs(job_, request_).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(JobLogs, ANegativeOffsetIsTheEndFromALinesBeginning) {
  Write(2, 0, "first line\nsecond\nthird\n");
  request_.set_offset(-9);
  const auto tail = ReadLogs(job_, request_);
  EXPECT_EQ(tail->text(), "third\n");
  EXPECT_EQ(tail->next_offset(), 24);
  request_.set_offset(-1000);
  EXPECT_EQ(ReadLogs(job_, request_)->text(), "first line\nsecond\nthird\n");
}

TEST_F(JobLogs, WhatABoundTookAwayIsSaidAndPassedOver) {
  std::string text;
  while (text.size() < 200000) text += "line " + std::to_string(text.size()) + "\n";
  Write(2, 0, text);
  const std::string path = folder_ + "/logs/epoch-2-rank-0.log";
  if (!scheduler::BoundLog(path, 65536)) GTEST_SKIP() << "this file system can't punch holes";
  EXPECT_FALSE(scheduler::BoundLog(path, 65536));  // small enough now
  const auto slice = ReadLogs(job_, request_);
  ASSERT_OK(slice);
  EXPECT_EQ(slice->text().find('['), 0u) << slice->text().substr(0, 80);
  const std::string rest = slice->text().substr(slice->text().find('\n') + 1);
  EXPECT_EQ(rest.find("line "), 0u);
  EXPECT_EQ(rest, text.substr(text.size() - rest.size()));
  EXPECT_EQ(slice->next_offset(), static_cast<int64_t>(text.size()));
}

}  // namespace
}  // namespace tessera::services

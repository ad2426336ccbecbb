#include "services/api/job_filter.h"

#include "gtest/gtest.h"
#include "proto/tessera/v1/violation.h"
#include "tests/services/job_builder.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

v1::TrainingJob Job() {
  v1::TrainingJob job = SmallJob("llama-one");
  job.mutable_spec()->set_priority(3);
  job.mutable_spec()->mutable_resources()->set_memory_limit_bytes(int64_t{1} << 30);
  job.mutable_status()->set_state(v1::JOB_STATE_RUNNING);
  job.mutable_status()->set_loss(2.5);
  job.mutable_status()->mutable_eta()->set_seconds(90);
  job.mutable_create_time()->set_seconds(1767225600);  // 2026-01-01
  return job;
}

bool Matches(const std::string& text) {
  const auto filter = JobFilter::Parse(text);
  EXPECT_OK(filter) << text << ": " << filter.status();
  return filter.ok() && filter->Matches(Job());
}

TEST(JobFilter, ComparesEveryKindOfField) {
  for (const char* text : {"",
                           "  ",
                           "name = llama-one",
                           "name = \"llama-*\"",
                           "name=*one",
                           "name = '*ama*'",
                           "name : lama",
                           "status.state = running",
                           "status.state != failed",
                           "spec.priority >= 3",
                           "spec.priority < 4.5",
                           "status.loss <= 2.5",
                           "spec.resources.memoryLimitBytes = 1Gi",
                           "spec.resources.memory_limit_bytes > 1GB",
                           "create_time >= \"2026-01-01T00:00:00Z\"",
                           "createTime < \"2026-01-01T00:00:01Z\"",
                           "status.eta > 1m",
                           "status.eta:*",
                           "NOT status.retry_time:*",
                           "status.cancel_requested = false"}) {
    EXPECT_TRUE(Matches(text)) << text;
  }
  for (const char* text :
       {"name = llama", "name = *two", "status.state = failed", "spec.priority > 3", "status.eta < 90s",
        "status.retry_time < \"2030-01-01T00:00:00Z\"", "status.retryTime:*"}) {
    EXPECT_FALSE(Matches(text)) << text;
  }
}

TEST(JobFilter, OrBindsTighterThanAndAndAndMayBeLeftOut) {
  EXPECT_TRUE(Matches("spec.priority = 9 OR spec.priority = 3 AND status.state = running"));
  EXPECT_FALSE(Matches("spec.priority = 3 OR spec.priority = 4 AND status.state = failed"));
  EXPECT_TRUE(Matches("spec.priority = 3 OR (spec.priority = 4 AND status.state = failed)"));
  EXPECT_TRUE(Matches("spec.priority = 3 status.state = running"));
  EXPECT_FALSE(Matches("spec.priority = 3 status.state = failed"));
  EXPECT_TRUE(Matches("-status.state = failed"));
  EXPECT_FALSE(Matches("NOT (status.state = failed OR spec.priority = 3)"));
}

TEST(JobFilter, WhatCannotBeUnderstoodIsRefusedByName) {
  for (const std::string& text : std::vector<std::string>{"state = running",
                                                          "status.state = runing",
                                                          "status.state > running",
                                                          "spec.priority = many",
                                                          "name",
                                                          "name =",
                                                          "= x",
                                                          "(name = x",
                                                          "name = x)",
                                                          "name = \"x",
                                                          "spec = x",
                                                          "status.workers = 1",
                                                          "spec.env.A = 1",
                                                          "create_time = yesterday",
                                                          "status.eta = soon",
                                                          "NOT",
                                                          "AND",
                                                          "name ! x",
                                                          "name.x = y",
                                                          "create_time.seconds = 1",
                                                          std::string(100, '(') + "name = x",
                                                          std::string(3000, 'x')}) {
    const auto filter = JobFilter::Parse(text);
    ASSERT_EQ(filter.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(spec::ViolationsFrom(filter.status()).at(0).path, "filter") << text;
  }
}

}  // namespace
}  // namespace tessera::services

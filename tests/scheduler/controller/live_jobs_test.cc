#include "scheduler/controller/live_jobs.h"

#include <gtest/gtest.h>

#include "scheduler/controller/down_message.h"

namespace tessera::scheduler {
namespace {

LiveJob Job(const std::string& name, v1::JobState state) {
  LiveJob live;
  live.record.job.set_namespace_("default");
  live.record.job.set_name(name);
  live.record.job.set_uid("uid-of-" + name);
  live.record.job.mutable_spec()->set_suspend(state == v1::JOB_STATE_SUSPENDED);
  live.status().set_state(state);
  return live;
}

TEST(LiveJobs, OnlyWhatWaitsForNothingRestsUntilItIsLookedUp) {
  LiveJobs jobs;
  jobs.Add(Job("running", v1::JOB_STATE_RUNNING));
  jobs.Add(Job("suspended", v1::JOB_STATE_SUSPENDED));
  LiveJob unstored = Job("unstored", v1::JOB_STATE_SUSPENDED);
  unstored.dirty = true;
  jobs.Add(std::move(unstored));
  LiveJob cancelled = Job("cancelled", v1::JOB_STATE_SUSPENDED);
  cancelled.status().set_cancel_requested(true);
  jobs.Add(std::move(cancelled));
  EXPECT_EQ(jobs.awake().size(), 4u);
  jobs.LetRest();
  EXPECT_EQ(jobs.awake().size(), 3u);
  EXPECT_FALSE(jobs.awake().contains("uid-of-suspended"));

  LiveJob* found = jobs.Find(JobKey{"default", "suspended"});
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(jobs.awake().contains("uid-of-suspended"));
  jobs.LetRest();
  EXPECT_FALSE(jobs.awake().contains("uid-of-suspended"));
  EXPECT_EQ(jobs.Find("uid-of-suspended"), found);
}

TEST(LiveJobs, WhatIsTakenOutIsNotFoundAnyMore) {
  LiveJobs jobs;
  jobs.Add(Job("a", v1::JOB_STATE_SUSPENDED));
  jobs.LetRest();
  EXPECT_EQ(jobs.Take("uid-of-a").record.job.name(), "a");
  EXPECT_EQ(jobs.Find("uid-of-a"), nullptr);
  EXPECT_EQ(jobs.Find(JobKey{"default", "a"}), nullptr);
  EXPECT_TRUE(jobs.awake().empty());
}

TEST(DownMessage, ARanksOwnPartIsMergedOverWhatAllShare) {
  v1::WorkerDown all, own;
  all.mutable_assignment()->set_job_name("job");
  all.mutable_assignment()->mutable_plan()->set_generation(3);
  own.mutable_assignment()->set_rank(7);
  const DownMessage shared = ToAll(all);
  DownMessage message = shared;
  message.own = own.SerializeAsString();
  EXPECT_EQ(message.shared, shared.shared) << "not a copy";
  const v1::WorkerDown read = Read(message);
  EXPECT_EQ(read.assignment().rank(), 7);
  EXPECT_EQ(read.assignment().job_name(), "job");
  EXPECT_EQ(read.assignment().plan().generation(), 3);
}

}  // namespace
}  // namespace tessera::scheduler

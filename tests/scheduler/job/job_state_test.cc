#include "scheduler/job/job_state.h"

#include <gtest/gtest.h>

namespace tessera::job {
namespace {

JobState At(int i) { return static_cast<JobState>(i); }

TEST(JobStateTest, NothingLeavesATerminalState) {
  for (int from = 0; from < kJobStates; ++from) {
    for (int to = 0; to < kJobStates; ++to) {
      if (IsTerminal(At(from)) && from != to) EXPECT_FALSE(IsLegalTransition(At(from), At(to))) << from << to;
    }
  }
}

TEST(JobStateTest, EveryLiveStateCanFailAndBeCancelled) {
  for (int from = 1; from < kJobStates; ++from) {
    if (IsTerminal(At(from))) continue;
    EXPECT_TRUE(IsLegalTransition(At(from), JobState::kFailed)) << JobStateName(At(from));
    EXPECT_TRUE(IsLegalTransition(At(from), JobState::kCancelled)) << JobStateName(At(from));
  }
}

TEST(JobStateTest, EveryStateIsReachableAndLeadsToAnEnd) {
  bool reached[kJobStates] = {};
  reached[0] = true;
  for (int round = 0; round < kJobStates; ++round) {
    for (int from = 0; from < kJobStates; ++from) {
      for (int to = 0; to < kJobStates; ++to)
        reached[to] |= reached[from] && IsLegalTransition(At(from), At(to));
    }
  }
  for (int state = 0; state < kJobStates; ++state) EXPECT_TRUE(reached[state]) << JobStateName(At(state));
}

TEST(JobStateTest, OnlyJobsWithWorkersHoldCapacity) {
  for (JobState state : {JobState::kQueued, JobState::kProfiling, JobState::kSuspended, JobState::kSucceeded,
                         JobState::kFailed, JobState::kCancelled}) {
    EXPECT_FALSE(HoldsCapacity(state)) << JobStateName(state);
  }
  for (JobState state : {JobState::kPlanned, JobState::kStarting, JobState::kWarmup, JobState::kRunning,
                         JobState::kReplanning, JobState::kDegraded}) {
    EXPECT_TRUE(HoldsCapacity(state)) << JobStateName(state);
  }
}

TEST(JobStateTest, AGroupIsOnlyStartedByAnOwnerOfCapacity) {
  for (int from = 0; from < kJobStates; ++from) {
    if (from != static_cast<int>(JobState::kStarting) && IsLegalTransition(At(from), JobState::kStarting)) {
      EXPECT_TRUE(HoldsCapacity(At(from))) << JobStateName(At(from));
    }
  }
}

}  // namespace
}  // namespace tessera::job

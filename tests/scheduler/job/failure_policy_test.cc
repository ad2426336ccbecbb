#include "scheduler/job/failure_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace tessera::job {
namespace {

using ::testing::HasSubstr;
const absl::Time kNow = absl::FromUnixSeconds(1000);

ObservedWorker Running(int rank) {
  ObservedWorker worker;
  worker.rank = rank;
  worker.running = true;
  return worker;
}
ObservedWorker Reported(int rank, Outcome outcome, std::string error, absl::Time at = kNow) {
  ObservedWorker worker = Running(rank);
  worker.outcome = outcome;
  worker.error = std::move(error);
  worker.ended_at = at;
  return worker;
}
ObservedWorker Exited(int rank, int code, int signal, absl::Time at = kNow) {
  ObservedWorker worker;
  worker.rank = rank;
  worker.exit_known = true;
  worker.exit_code = code;
  worker.signal = signal;
  worker.ended_at = at;
  return worker;
}
Observed Group(std::vector<ObservedWorker> workers) {
  Observed observed;
  observed.launched = true;
  observed.workers = std::move(workers);
  return observed;
}

struct Case {
  const char* what;
  ObservedWorker worker;
  FailureClass expected;
  const char* message;
};

TEST(FailurePolicyTest, ClassifiesEveryKindOfEnd) {
  ObservedWorker unknown;
  unknown.rank = 2;
  const Case cases[] = {
      {"killed", Exited(2, 128 + SIGKILL, SIGKILL), FailureClass::kInfrastructure,
       "worker 2 was killed by signal 9 (SIGKILL)"},
      {"terminated", Exited(2, 128 + SIGTERM, SIGTERM), FailureClass::kInfrastructure, "signal 15 (SIGTERM)"},
      {"segfault", Exited(2, 128 + SIGSEGV, SIGSEGV), FailureClass::kApplication,
       "worker 2 crashed with signal 11 (SIGSEGV)"},
      {"exit code", Exited(2, 1, 0), FailureClass::kApplication, "worker 2 exited with code 1 and no report"},
      {"exit invalid", Exited(2, kExitInvalid, 0), FailureClass::kInvalid, "worker 2 can't run this job"},
      {"exit memory", Exited(2, kExitOutOfMemory, 0), FailureClass::kOutOfMemory,
       "worker 2 ran out of memory"},
      {"unknown exit", unknown, FailureClass::kInfrastructure, "worker 2 ended unobserved"},
      {"memory", Reported(2, Outcome::kOutOfMemory, "tried to allocate 3 GB"), FailureClass::kOutOfMemory,
       "worker 2 ran out of memory: tried to allocate 3 GB"},
      {"application", Reported(2, Outcome::kApplication, "loss is nan"), FailureClass::kApplication,
       "worker 2 failed: loss is nan"},
      {"invalid", Reported(2, Outcome::kInvalid, "no such shard"), FailureClass::kInvalid,
       "worker 2 can't run this job: no such shard"},
  };
  for (const Case& c : cases) {
    auto failure = FindFailure(Group({Running(0), Running(1), c.worker}), false, kNow);
    ASSERT_TRUE(failure.has_value()) << c.what;
    EXPECT_EQ(failure->failure_class, c.expected) << c.what;
    EXPECT_EQ(failure->rank, 2) << c.what;
    EXPECT_THAT(failure->message, HasSubstr(c.message)) << c.what;
  }
}

TEST(FailurePolicyTest, SurvivorsThatLostAPeerAreNotBlamed) {
  auto failure =
      FindFailure(Group({Reported(0, Outcome::kPeerLost, "connection reset", kNow - absl::Seconds(1)),
                         Exited(1, kExitPeerLost, 0), Exited(2, 128 + SIGKILL, SIGKILL)}),
                  false, kNow);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->message, "worker 2 was killed by signal 9 (SIGKILL)");
}

TEST(FailurePolicyTest, TheCulpritIsWaitedForBeforeAWitnessIsBelieved) {
  const Observed observed = Group({Reported(0, Outcome::kPeerLost, "connection reset"), Running(1)});
  EXPECT_FALSE(FindFailure(observed, false, kNow + kWitnessGrace - absl::Milliseconds(1)).has_value());
  auto failure = FindFailure(observed, false, kNow + kWitnessGrace);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->failure_class, FailureClass::kInfrastructure);
  EXPECT_EQ(failure->message, "worker 0 lost contact to its peers: connection reset");
}

TEST(FailurePolicyTest, TheFirstToFailIsTheCulprit) {
  auto failure =
      FindFailure(Group({Exited(0, 1, 0, kNow), Exited(1, 128 + SIGSEGV, SIGSEGV, kNow - absl::Seconds(2))}),
                  false, kNow);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 1);
}

TEST(FailurePolicyTest, StoppingIsAFailureOnlyWhenNobodyAsked) {
  const Observed observed = Group({Reported(0, Outcome::kStopped, ""), Running(1)});
  EXPECT_TRUE(FindFailure(observed, false, kNow).has_value());
  EXPECT_FALSE(FindFailure(observed, true, kNow).has_value());
}

TEST(FailurePolicyTest, HealthyAndCompletedWorkersAreNoFailure) {
  EXPECT_FALSE(
      FindFailure(Group({Running(0), Reported(1, Outcome::kCompleted, ""), Exited(2, 0, 0)}), false, kNow));
}

TEST(FailurePolicyTest, BackoffDoublesUpToTheLimitOfTheClass) {
  RetryPolicy policy;
  policy.limit = {3, 1, 0, 0};
  policy.backoff = absl::Seconds(2);
  EXPECT_EQ(RetryTime(policy, {1, 0, 0, 0}, FailureClass::kInfrastructure, kNow), kNow + absl::Seconds(2));
  EXPECT_EQ(RetryTime(policy, {2, 0, 0, 0}, FailureClass::kInfrastructure, kNow), kNow + absl::Seconds(4));
  EXPECT_EQ(RetryTime(policy, {3, 0, 0, 0}, FailureClass::kInfrastructure, kNow), kNow + absl::Seconds(8));
  EXPECT_EQ(RetryTime(policy, {4, 0, 0, 0}, FailureClass::kInfrastructure, kNow), std::nullopt);
  EXPECT_EQ(RetryTime(policy, {3, 1, 0, 0}, FailureClass::kOutOfMemory, kNow), kNow + absl::Seconds(16));
  EXPECT_EQ(RetryTime(policy, {0, 0, 1, 0}, FailureClass::kApplication, kNow), std::nullopt);
  EXPECT_EQ(RetryTime(policy, {0, 0, 0, 1}, FailureClass::kInvalid, kNow), std::nullopt);
}

TEST(FailurePolicyTest, InvalidIsNeverRetriedWhateverTheLimit) {
  RetryPolicy policy;
  policy.limit = {9, 9, 9, 9};
  EXPECT_EQ(RetryTime(policy, {0, 0, 0, 1}, FailureClass::kInvalid, kNow), std::nullopt);
}

}  // namespace
}  // namespace tessera::job

#include "scheduler/job/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tessera::job {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1000);

Claim Waiting(std::string id, int64_t megabytes, int age = 0, int priority = 0) {
  Claim claim;
  claim.id = claim.name = std::move(id);
  claim.bytes = megabytes * 1'000'000;
  claim.created = absl::FromUnixSeconds(1000 - age);
  claim.priority = priority;
  claim.waits = true;
  return claim;
}
Claim Holding(std::string id, int64_t megabytes) {
  Claim claim = Waiting(std::move(id), megabytes);
  claim.waits = false;
  claim.holds = true;
  return claim;
}

TEST(AdmissionTest, OlderGoesFirstAndHigherPriorityBeforeIt) {
  const Claim claims[] = {Waiting("young", 600, 1), Waiting("old", 600, 9), Waiting("urgent", 600, 0, 5)};
  auto verdicts = Admit(claims, 1'300'000'000, kNow);
  EXPECT_TRUE(verdicts["urgent"].admitted);
  EXPECT_TRUE(verdicts["old"].admitted);
  EXPECT_FALSE(verdicts["young"].admitted);
}

TEST(AdmissionTest, SaysWithNumbersWhyAJobWaits) {
  const Claim claims[] = {Holding("a", 700), Waiting("b", 500, 5), Waiting("c", 100, 1)};
  auto verdicts = Admit(claims, 1'000'000'000, kNow);
  EXPECT_EQ(verdicts["b"].message,
            "needs 500 MB; 300 MB of 1000 MB are free; starts when 200 MB more are: 'a' holds 700 MB");
  EXPECT_THAT(verdicts["c"].message, HasSubstr("waits behind job 'b', which needs 500 MB"));
  EXPECT_FALSE(verdicts["c"].admitted) << "a small job must not starve a large one before it";
}

TEST(AdmissionTest, SmallJobsOvertakeALargeOneForAWhileOnly) {
  Claim large = Waiting("large", 800, 9);
  Claim small = Waiting("small", 100, 1);
  Claim too_large = Waiting("too_large", 500, 0);
  large.waiting_since = small.waiting_since = too_large.waiting_since = kNow - absl::Minutes(1);
  const Claim young[] = {Holding("a", 700), large, small, too_large};
  auto verdicts = Admit(young, 1'000'000'000, kNow);
  EXPECT_FALSE(verdicts["large"].admitted);
  EXPECT_TRUE(verdicts["small"].admitted);
  EXPECT_FALSE(verdicts["too_large"].admitted);
  verdicts = Admit(young, 1'000'000'000, kNow + kBackfillWindow);
  EXPECT_FALSE(verdicts["small"].admitted);
  EXPECT_THAT(verdicts["small"].message, HasSubstr("waits behind job 'large'"));
}

TEST(AdmissionTest, AJobLargerThanTheMachineHoldsBackNobody) {
  const Claim claims[] = {Waiting("huge", 5000, 9), Waiting("small", 100, 1)};
  auto verdicts = Admit(claims, 1'000'000'000, kNow);
  EXPECT_FALSE(verdicts["huge"].admitted);
  EXPECT_THAT(verdicts["huge"].message, HasSubstr("more than the 1000 MB of this machine"));
  EXPECT_TRUE(verdicts["small"].admitted);
}

TEST(AdmissionTest, UnknownCapacityAdmitsEverything) {
  const Claim claims[] = {Holding("a", 700), Waiting("b", 50000)};
  EXPECT_TRUE(Admit(claims, 0, kNow)["b"].admitted);
}

TEST(AdmissionTest, NeverHandsOutMoreThanThereIs) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<Claim> claims;
    int64_t held = 0;
    for (int i = 0; i < 8; ++i) {
      const auto size = static_cast<int64_t>(random() % 500);
      claims.push_back(
          Waiting(std::to_string(i), size, static_cast<int>(random() % 5), static_cast<int>(random() % 3)));
      if (random() % 3 == 0 && held + claims.back().bytes <= 1'000'000'000) {
        claims.back().waits = false;
        claims.back().holds = true;
        held += claims.back().bytes;
      }
    }
    auto verdicts = Admit(claims, 1'000'000'000, kNow);
    for (const Claim& claim : claims) {
      if (claim.waits && verdicts.at(claim.id).admitted) held += claim.bytes;
      if (claim.waits) EXPECT_FALSE(verdicts.at(claim.id).message.empty());
    }
    EXPECT_LE(held, 1'000'000'000);
  }
}

}  // namespace
}  // namespace tessera::job

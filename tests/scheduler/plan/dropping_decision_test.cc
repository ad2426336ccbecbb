#include "scheduler/plan/dropping_decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tessera::plan {
namespace {

using ::testing::HasSubstr;

// 300 ms of computation, of which 200 ms of backward hide reductions.
DroppingQuestion Question(double bytes_per_second) {
  return {.compute_seconds = 0.3,
          .bytes_per_second = bytes_per_second,
          .dense_traffic = 100'000'000,
          .dropped_traffic = 30'000'000,
          .dense_memory = 900 << 20,
          .dropped_memory = 700 << 20};
}

TEST(DroppingDecisionTest, PaysOnASlowLink) {
  const DroppingDecision decision = DecideDropping(Question(100e6));
  EXPECT_TRUE(decision.pays);
  EXPECT_NEAR(decision.dense_seconds, 0.1 + 1.0, 1e-9);
  EXPECT_NEAR(decision.dropped_seconds, 0.1 + 0.3, 1e-9);
}

TEST(DroppingDecisionTest, DoesNotPayWhereBackwardHidesTheReductions) {
  const DroppingDecision decision = DecideDropping(Question(1e9));
  EXPECT_FALSE(decision.pays);
  EXPECT_THAT(decision.reason, HasSubstr("0.3 s with dropping and 0.3 s without, and dense gradients fit"));
}

TEST(DroppingDecisionTest, PaysWhereDenseGradientsDoNotFitWhateverTheLink) {
  DroppingQuestion question = Question(1e9);
  question.memory_limit = 800 << 20;
  const DroppingDecision decision = DecideDropping(question);
  EXPECT_TRUE(decision.pays);
  EXPECT_THAT(decision.reason, HasSubstr("dense gradients need 900.0 MiB where 800.0 MiB may be used"));
  question.memory_limit = 1000 << 20;
  EXPECT_FALSE(DecideDropping(question).pays);
}

TEST(DroppingDecisionTest, WhatIsNotKnownLeavesItOn) {
  EXPECT_TRUE(DecideDropping(Question(0)).pays);
  EXPECT_THAT(DecideDropping(Question(0)).reason, HasSubstr("links are not measured"));
}

TEST(DroppingDecisionTest, AFasterLinkNeverMakesItPay) {
  bool paid = true;
  for (int power = 0; power < 44; ++power) {
    const double speed = 1e6 * std::pow(1.3, power);
    const bool pays = DecideDropping(Question(speed)).pays;
    EXPECT_TRUE(paid || !pays) << speed;
    paid = pays;
  }
  EXPECT_FALSE(paid);
}

}  // namespace
}  // namespace tessera::plan

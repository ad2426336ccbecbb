#include "worker/train/step_record.h"

#include <gtest/gtest.h>

#include "worker/train/learning_rate.h"

namespace tessera::worker {
namespace {

StepRecord Record(double squared_norm, double loss_sum, double tokens) {
  StepRecord record;
  record.squared_norm = squared_norm;
  record.loss_sum = loss_sum;
  record.tokens = tokens;
  record.plan_generation = 1;
  return record;
}

TEST(AgreeTest, NormAddsTheOwnersPartsAndClipsToIt) {
  const Agreement agreed = Agree({Record(9, 0, 1), Record(16, 0, 1)}, 1);
  EXPECT_DOUBLE_EQ(agreed.gradient_norm, 5);
  EXPECT_NEAR(agreed.clip_factor, 0.2, 1e-6);
}

TEST(AgreeTest, SmallNormsAndNoClippingLeaveTheGradient) {
  EXPECT_EQ(Agree({Record(0.25, 0, 1)}, 1).clip_factor, 1);
  EXPECT_EQ(Agree({Record(100, 0, 1)}, 0).clip_factor, 1);
}

TEST(AgreeTest, AFencedRankForbidsEveryCheckpoint) {
  StepRecord a = Record(0, 1, 1), b = Record(0, 1, 1);
  a.wants_checkpoint = 1;
  EXPECT_TRUE(Agree({a, b}, 0).checkpoint);
  b.fenced = 1;
  EXPECT_FALSE(Agree({a, b}, 0).checkpoint);
  EXPECT_TRUE(Agree({a, b}, 0).fenced);
}

TEST(AgreeTest, LossIsWeightedByTokensNotByRanks) {
  EXPECT_DOUBLE_EQ(Agree({Record(0, 10, 10), Record(0, 90, 30)}, 0).loss, 2.5);
  EXPECT_EQ(Agree({Record(0, 0, 0)}, 0).loss, 0);
}

TEST(AgreeTest, AGenerationIsAdoptedWhenItIsEveryRanksNewest) {
  StepRecord a = Record(0, 1, 1), b = Record(0, 1, 1);
  a.plan_generation = b.plan_generation = 2;
  EXPECT_TRUE(Agree({a, b}, 0).same_generation);
  EXPECT_EQ(Agree({a, b}, 0).plan_generation, 2);
}

TEST(AgreeTest, SelectionsAgreeWhenTheirChecksSumToZero) {
  StepRecord a = Record(0, 1, 1), b = Record(0, 1, 1), c = Record(0, 1, 1);
  const uint32_t hash = 0xdeadbeef;  // the owner's counts for both others
  a.selection = 2 * hash;
  b.selection = c.selection = -hash;
  EXPECT_TRUE(Agree({a, b, c}, 0).same_selection);
  c.selection = -hash + 1;
  EXPECT_FALSE(Agree({a, b, c}, 0).same_selection);
}

TEST(AgreeTest, AnyRanksWishCountsAndTheSmallestGenerationHolds) {
  StepRecord a = Record(0, 1, 1), b = Record(0, 1, 1), c = Record(0, 1, 1);
  a.plan_generation = 4;
  b.plan_generation = 3;
  c.plan_generation = 5;
  b.wants_stop = 1;
  c.wants_checkpoint = 1;
  a.end_of_data = 1;
  b.compute_seconds = 2;
  const Agreement agreed = Agree({a, b, c}, 0);
  EXPECT_TRUE(agreed.stop && agreed.checkpoint && agreed.end_of_data);
  EXPECT_EQ(agreed.plan_generation, 3);
  EXPECT_FALSE(agreed.same_generation);
  EXPECT_EQ(agreed.slowest_rank, 1);
  const Agreement quiet = Agree({Record(0, 1, 1)}, 0);
  EXPECT_FALSE(quiet.stop || quiet.checkpoint || quiet.end_of_data);
}

TEST(LearningRateTest, WarmsUpThenDecaysToTheFinalShare) {
  LearningRateSchedule s;
  s.peak = 2;
  s.warmup_steps = 4;
  s.total_steps = 104;
  EXPECT_DOUBLE_EQ(LearningRate(s, 0), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(s, 3), 2);
  EXPECT_DOUBLE_EQ(LearningRate(s, 4), 2);
  EXPECT_NEAR(LearningRate(s, 54), 1.1, 1e-12);  // halfway between 2 and 0.2
  EXPECT_NEAR(LearningRate(s, 104), 0.2, 1e-12);
  EXPECT_NEAR(LearningRate(s, 1000), 0.2, 1e-12);
  s.decay = Decay::kLinear;
  EXPECT_NEAR(LearningRate(s, 29), 2 * (0.1 + 0.9 * 0.75), 1e-12);
  s.decay = Decay::kConstant;
  EXPECT_EQ(LearningRate(s, 100), 2);
}

}  // namespace
}  // namespace tessera::worker

#include "scheduler/plan/loss_regression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera::plan {
namespace {

constexpr int kWindow = LossRegression::kWindow;

// Losses with an alternating noise about a line, and a jump when the change comes.
std::optional<LossChange> Judge(double slope, double noise, double jump) {
  LossRegression watch;
  int64_t step = 0;
  const auto note = [&](double offset) {
    ++step;
    watch.Note(step, 3 + slope * static_cast<double>(step) + (step % 2 == 0 ? noise : -noise) + offset);
  };
  for (int i = 0; i < 2 * kWindow; ++i) note(0);
  watch.Change(step);
  for (int i = 0; i < kWindow - 1; ++i) {
    note(jump);
    EXPECT_FALSE(watch.Verdict().has_value()) << "judged early";
  }
  note(jump);
  const auto verdict = watch.Verdict();
  EXPECT_FALSE(watch.Verdict().has_value()) << "judged twice";
  return verdict;
}

TEST(LossRegressionTest, ALossThatGoesOnFallingIsNotWorse) {
  ASSERT_TRUE(Judge(-0.005, 0.05, 0).has_value());
  EXPECT_FALSE(Judge(-0.005, 0.05, 0)->worse());
}

TEST(LossRegressionTest, AJumpBeyondTheNoiseIsWorseAndOneWithinItIsNot) {
  EXPECT_TRUE(Judge(0, 0.05, 0.5)->worse());
  EXPECT_FALSE(Judge(0, 0.05, 0.01)->worse());
  EXPECT_FALSE(Judge(0, 0.5, 0.2)->worse()) << "noise of half a nat hides a fifth";
  EXPECT_TRUE(Judge(0, 0, std::numeric_limits<double>::infinity())->worse());
}

TEST(LossRegressionTest, WithoutEnoughLossesBeforeThereIsNoVerdict) {
  LossRegression watch;
  for (int step = 1; step <= 5; ++step) watch.Note(step, 1);
  watch.Change(5);
  for (int step = 6; step <= 6 + kWindow; ++step) watch.Note(step, 9);
  EXPECT_FALSE(watch.Verdict().has_value());
}

TEST(LossRegressionTest, NothingIsComparedAcrossARestart) {
  LossRegression watch;
  for (int step = 1; step <= kWindow; ++step) watch.Note(step, 1);
  watch.Change(kWindow);
  watch.Restart();
  for (int step = 1; step <= 3 * kWindow; ++step) watch.Note(step, 9);
  EXPECT_FALSE(watch.Verdict().has_value());
}

}  // namespace
}  // namespace tessera::plan

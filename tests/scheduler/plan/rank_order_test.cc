#include "scheduler/plan/rank_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "scheduler/plan/counter_random.h"
#include "tests/status.h"

namespace tessera::plan {
namespace {

double Uniform(uint64_t trial, uint64_t i) {
  return static_cast<double>(CounterRandom(7, trial, i) >> 11) * 0x1p-53;
}

std::vector<double> PointsInAPlane(uint64_t trial, size_t workers) {
  std::vector<double> seconds(workers * workers, 0.0);
  for (size_t a = 0; a < workers; ++a) {
    for (size_t b = 0; b < workers; ++b) {
      if (a == b) continue;
      seconds[a * workers + b] = 1e-4 + std::hypot(Uniform(trial, 2 * a) - Uniform(trial, 2 * b),
                                                   Uniform(trial, 2 * a + 1) - Uniform(trial, 2 * b + 1));
    }
  }
  return seconds;
}

TEST(RankOrderTest, VisitsEveryWorkerOnceAndComesCloseToTheShortestTour) {
  for (uint64_t trial = 0; trial < 40; ++trial) {
    const int workers = 7;
    const std::vector<double> seconds = PointsInAPlane(trial, workers);
    const auto tour = OrderByRoundTrip(workers, seconds);
    ASSERT_OK(tour);
    std::vector<int> order(workers);
    std::iota(order.begin(), order.end(), 0);
    ASSERT_TRUE(std::is_permutation(tour->begin(), tour->end(), order.begin()));
    double best = std::numeric_limits<double>::infinity();
    do {
      best = std::min(best, TourSeconds(order, seconds));
    } while (std::next_permutation(order.begin() + 1, order.end()));
    ASSERT_LE(TourSeconds(*tour, seconds), 1.1 * best) << "trial " << trial;
  }
}

TEST(RankOrderTest, TwoRacksAreCrossedTwice) {
  const int workers = 8;
  std::vector<double> seconds(64, 0.0);
  for (int a = 0; a < workers; ++a) {
    for (int b = 0; b < workers; ++b) seconds[a * workers + b] = a == b ? 0 : a % 2 == b % 2 ? 1e-4 : 1e-2;
  }
  const auto tour = OrderByRoundTrip(workers, seconds);
  ASSERT_OK(tour);
  int crossings = 0;
  for (int i = 0; i < workers; ++i) crossings += (*tour)[i] % 2 != (*tour)[(i + 1) % workers] % 2;
  EXPECT_EQ(crossings, 2);
}

TEST(RankOrderTest, UnknownTimesCountAsTheLongest) {
  std::vector<double> seconds(16, 1e-3);
  for (int i = 0; i < 4; ++i) seconds[i * 4 + i] = 0;
  seconds[0 * 4 + 1] = seconds[1 * 4 + 0] = 0;
  const auto tour = OrderByRoundTrip(4, seconds);
  ASSERT_OK(tour);
  EXPECT_NEAR(TourSeconds(*tour, seconds), 4e-3, 1e-12);
}

TEST(RankOrderTest, RefusesTimesThatMakeNoSense) {
  EXPECT_FALSE(OrderByRoundTrip(2, {0, 1}).ok());
  EXPECT_FALSE(OrderByRoundTrip(2, {0, -1, 1, 0}).ok());
  EXPECT_FALSE(OrderByRoundTrip(2, {0, std::nan(""), 1, 0}).ok());
  EXPECT_FALSE(OrderByRoundTrip(0, {}).ok());
}

}  // namespace
}  // namespace tessera::plan

#include "scheduler/plan/holder_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "scheduler/plan/counter_random.h"
#include "scheduler/plan/load_shares.h"

namespace tessera::plan {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(HolderCountsTest, AWholeProductGivesEveryUnitAsMany) {
  EXPECT_THAT(HolderCounts(0.5, 4, {7, 1, 100}), Each(2));
  EXPECT_THAT(HolderCounts(0.7, 10, {7, 1, 100}), Each(7));  // 0.7 * 10 is 6.999... in binary
  EXPECT_THAT(HolderCounts(1, 3, {7, 1}), Each(3));
}

TEST(HolderCountsTest, AFractionalProductAlternatesBetweenItsNeighbours) {
  EXPECT_THAT(HolderCounts(0.375, 4, {5, 5, 5, 5}), ElementsAre(2, 1, 2, 1));
}

TEST(HolderCountsTest, MeanCoverageStaysWithinHalfOfTheLargestUnit) {
  for (uint64_t trial = 0; trial < 500; ++trial) {
    const int workers = 1 + static_cast<int>(CounterRandom(7, trial, 0) % 16);
    const int units = 1 + static_cast<int>(CounterRandom(7, trial, 1) % 40);
    const double lowest = 1.0 / workers;
    const double coverage =
        lowest + (1 - lowest) * static_cast<double>(CounterRandom(7, trial, 2) % 1001) / 1000;
    std::vector<int64_t> elements(units);
    for (int u = 0; u < units; ++u)
      elements[u] = 1 + static_cast<int64_t>(CounterRandom(7, trial, 3, u) % 5000);

    const std::vector<int> counts = HolderCounts(coverage, workers, elements);

    double given = 0;
    for (int u = 0; u < units; ++u) {
      ASSERT_GE(counts[u], 1);
      ASSERT_LE(counts[u], workers);
      ASSERT_LT(std::abs(counts[u] - coverage * workers), 1.0 + 1e-9);
      given += static_cast<double>(counts[u] * elements[u]);
    }
    const double asked = coverage * workers * std::accumulate(elements.begin(), elements.end(), 0.0);
    const double half = static_cast<double>(*std::max_element(elements.begin(), elements.end())) / 2;
    ASSERT_LE(std::abs(given - asked), half * 1.0001 + 1e-6) << "trial " << trial;
  }
}

TEST(LoadSharesTest, EqualWorkersShareEqually) {
  const std::vector<double> shares = LoadShares(
      {.total = 12, .always_on = 3, .all_maskable = 6, .speeds = {1, 1, 1, 1}, .limits = {6, 6, 6, 6}});
  for (double share : shares) EXPECT_NEAR(share, 0.25, 1e-12);
}

TEST(LoadSharesTest, TheWholeLoadOfAWorkerIsProportionalToItsSpeed) {
  // Always-on 2 each, 9 to hand out: 15 in all, so 10 for the fast and 5 for the slow.
  const std::vector<double> shares =
      LoadShares({.total = 11, .always_on = 2, .all_maskable = 100, .speeds = {2, 1}, .limits = {100, 100}});
  EXPECT_NEAR(shares[0] * 11 + 2, 10, 1e-9);
  EXPECT_NEAR(shares[1] * 11 + 2, 5, 1e-9);
}

TEST(LoadSharesTest, AWorkerAtItsLimitLeavesTheRestToTheOthers) {
  const std::vector<double> shares =
      LoadShares({.total = 12, .always_on = 0, .all_maskable = 8, .speeds = {1, 1, 1}, .limits = {2, 8, 8}});
  EXPECT_NEAR(shares[0] * 12, 2, 1e-9);
  EXPECT_NEAR(shares[1] * 12, 5, 1e-9);
  EXPECT_NEAR(shares[2] * 12, 5, 1e-9);
}

}  // namespace
}  // namespace tessera::plan

#include "scheduler/plan/masking_error.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "scheduler/plan/counter_random.h"

namespace tessera::plan {
namespace {

std::vector<int> Members(unsigned subset, int workers) {
  std::vector<int> members;
  for (int w = 0; w < workers; ++w) {
    if (subset >> w & 1) members.push_back(w);
  }
  return members;
}

std::vector<double> Derivatives(int workers, uint64_t seed) {
  std::vector<double> derivatives(workers);
  for (int w = 0; w < workers; ++w) {
    derivatives[w] = static_cast<double>(CounterRandom(seed, w) >> 11) * 0x1p-53 * 4 - 1;
  }
  return derivatives;
}

// Every r-subset of the workers is tried, so the expectations are exact.
TEST(MaskingErrorTest, BiasHasMeanZeroAndTheStatedSquareOverAllSubsets) {
  for (int workers = 2; workers <= 8; ++workers) {
    const std::vector<double> derivatives = Derivatives(workers, 11 + workers);
    for (int holders = 1; holders <= workers; ++holders) {
      double sum = 0;
      double squares = 0;
      int subsets = 0;
      for (unsigned subset = 0; subset < (1u << workers); ++subset) {
        if (std::popcount(subset) != holders) continue;
        const double bias = MaskingBias(derivatives, Members(subset, workers));
        sum += bias;
        squares += bias * bias;
        ++subsets;
      }
      EXPECT_NEAR(sum / subsets, 0, 1e-13);
      EXPECT_NEAR(squares / subsets, ExpectedSquaredBias(derivatives, holders), 1e-13)
          << holders << " of " << workers;
    }
  }
}

TEST(MaskingErrorTest, BiasVanishesOnIidShardsAndWithFullCoverage) {
  EXPECT_EQ(MaskingBias({3, 3, 3, 3}, {1, 2}), 0);
  EXPECT_EQ(ExpectedSquaredBias({3, 3, 3, 3}, 2), 0);
  EXPECT_EQ(ExpectedSquaredBias({1, 2, 3, 4}, 4), 0);
  EXPECT_EQ(SquaredBiasFactor(1, 1), 0);
}

TEST(MaskingErrorTest, VarianceGrowsByTheInverseOfCoverage) {
  EXPECT_DOUBLE_EQ(VarianceFactor(8, 3), 8.0 / 3);
  EXPECT_DOUBLE_EQ(VarianceFactor(8, 8), 1);
  // The mean of r independent unit variances has variance 1/r; data parallelism has 1/N.
  EXPECT_DOUBLE_EQ((1.0 / 3) / (1.0 / 8), VarianceFactor(8, 3));
}

TEST(MaskingErrorTest, GradientNormBoundAddsItsThreeTerms) {
  const ConvergenceTerms terms{.initial_gap = 3,
                               .learning_rate = 0.1,
                               .steps = 100,
                               .smoothness = 2,
                               .gradient_variance = 5,
                               .holders = 4,
                               .mean_squared_bias = 0.25};
  EXPECT_DOUBLE_EQ(GradientNormBound(terms), 0.6 + 0.25 + 0.25);
}

}  // namespace
}  // namespace tessera::plan

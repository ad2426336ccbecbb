#include "worker/models/normal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera::worker {
namespace {

TEST(Normal, HasTheMomentsOfANormalDistribution) {
  constexpr int kCount = 1'000'000;
  std::vector<float> x(kCount);
  FillNormal(1, "a", 1, x);
  double sum = 0, square = 0, cube = 0, fourth = 0, beyond = 0;
  for (double v : x) {
    sum += v, square += v * v, cube += v * v * v, fourth += v * v * v * v;
    beyond += std::abs(v) > 1.959964;
  }
  // Four standard errors of each estimate.
  EXPECT_NEAR(sum / kCount, 0, 4e-3);
  EXPECT_NEAR(square / kCount, 1, 4 * std::sqrt(2e-6));
  EXPECT_NEAR(cube / kCount, 0, 4 * std::sqrt(15e-6));
  EXPECT_NEAR(fourth / kCount, 3, 4 * std::sqrt(96e-6));
  EXPECT_NEAR(beyond / kCount, 0.05, 4 * std::sqrt(0.05 * 0.95e-6));
}

TEST(Normal, IsAFunctionOfSeedStreamAndPosition) {
  std::vector<float> a(1001), b(1001), shorter(500);
  FillNormal(5, "model.layers.0", 0.02, a);
  FillNormal(5, "model.layers.0", 0.02, b);
  EXPECT_EQ(a, b);
  FillNormal(5, "model.layers.0", 0.02, shorter);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), a.begin()));
  FillNormal(6, "model.layers.0", 0.02, b);
  EXPECT_NE(a, b);
  FillNormal(5, "model.layers.1", 0.02, b);
  EXPECT_NE(a, b);
}

TEST(Normal, PairsLieAtAUniformRadius) {
  // The square sum of a pair is -2 log u with u uniform.
  std::vector<float> x(2'000);
  FillNormal(9, "b", 1, x);
  double largest = 0, mean = 0;
  for (size_t i = 0; i < x.size(); i += 2) {
    const double u = std::exp(-0.5 * (double{x[i]} * x[i] + double{x[i + 1]} * x[i + 1]));
    largest = std::max(largest, u);
    mean += u / 1000;
  }
  EXPECT_LE(largest, 1);
  EXPECT_NEAR(mean, 0.5, 4 * std::sqrt(1.0 / 12 / 1000));
}

}  // namespace
}  // namespace tessera::worker

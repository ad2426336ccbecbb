#include "scheduler/plan/mask_graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "scheduler/plan/counter_random.h"
#include "scheduler/plan/symmetric_eigenvalues.h"
#include "tests/scheduler/plan/shapes.h"
#include "tests/status.h"

namespace tessera::plan {
namespace {

using testing::UniformShape;

TEST(SymmetricEigenvaluesTest, SolvesASmallMatrixKnownInClosedForm) {
  // Path of n nodes: 2 - 2 cos(pi k / (n + 1)) for the matrix with 2 on and -1 beside the diagonal.
  const int n = 12;
  std::vector<double> matrix(n * n, 0.0);
  for (int i = 0; i < n; ++i) {
    matrix[i * n + i] = 2;
    if (i + 1 < n) matrix[i * n + i + 1] = matrix[(i + 1) * n + i] = -1;
  }
  const std::vector<double> eigenvalues = SymmetricEigenvalues(matrix, n);
  for (int k = 1; k <= n; ++k) {
    EXPECT_NEAR(eigenvalues[n - k], 2 - 2 * std::cos(std::numbers::pi * k / (n + 1)), 1e-13);
  }
}

TEST(SymmetricEigenvaluesTest, KeepsTraceAndSquaredNorm) {
  const int n = 30;
  std::vector<double> matrix(n * n);
  double trace = 0;
  double squares = 0;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j <= i; ++j) {
      const double x = static_cast<double>(CounterRandom(3, i, j) >> 11) * 0x1p-53 - 0.5;
      matrix[i * n + j] = matrix[j * n + i] = x;
      squares += (i == j ? 1 : 2) * x * x;
    }
    trace += matrix[i * n + i];
  }
  double sum = 0;
  double sum_squares = 0;
  for (double x : SymmetricEigenvalues(matrix, n)) {
    sum += x;
    sum_squares += x * x;
  }
  EXPECT_NEAR(sum, trace, 1e-12);
  EXPECT_NEAR(sum_squares, squares, 1e-11);
}

struct GapCase {
  int holders;
  double gap;
};

class CyclicGapTest : public ::testing::TestWithParam<GapCase> {};

// Eight workers, eight equal blocks, none always on.
TEST_P(CyclicGapTest, AgreesWithTheTableAndTheClosedForm) {
  const auto [r, gap] = GetParam();
  const auto plan =
      MakeMaskPlan(UniformShape(8), {.workers = 8, .coverage = r / 8.0, .ends_always_on = false});
  ASSERT_OK(plan);
  const double measured = AnalyseMaskGraph(*plan).gap;
  EXPECT_NEAR(measured, gap, 1e-4);
  const double ratio = std::sin(std::numbers::pi * r / 8) / (r * std::sin(std::numbers::pi / 8));
  EXPECT_NEAR(measured, 1 - ratio * ratio, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(EightWorkers, CyclicGapTest,
                         ::testing::Values(GapCase{1, 0}, GapCase{2, .1464}, GapCase{3, .3524},
                                           GapCase{4, .5732}, GapCase{5, .7669}, GapCase{6, .9052},
                                           GapCase{7, .9796}, GapCase{8, 1}),
                         [](const auto& info) { return std::to_string(info.param.holders) + "_holders"; });

TEST(SpectralGapTest, IsZeroForAGraphInPiecesAndOneForACompleteOne) {
  EXPECT_EQ(SpectralGap(4, {{0, 1}, {2, 3}, {0, 1}, {2, 3}}), 0);
  EXPECT_EQ(SpectralGap(4, {{0, 1}}), 0);  // two workers hold nothing
  EXPECT_NEAR(SpectralGap(4, {{0, 1, 2, 3}, {0, 1, 2, 3}}), 1, 1e-12);
  EXPECT_EQ(SpectralGap(4, {{0, 1, 2, 3}}), 1);
  EXPECT_EQ(SpectralGap(4, {}), 1);
  EXPECT_EQ(SpectralGap(1, {{0}, {0}}), 1);
}

TEST(SpectralGapTest, AllPairsOfFourWorkersGiveTwoThirds) {
  // M = (2 I + J) / 6, so lambda_2 = 1/3.
  EXPECT_NEAR(SpectralGap(4, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}), 2.0 / 3, 1e-12);
}

TEST(SpectralGapTest, IsTheSameWhetherWorkersOrUnitsAreFewer) {
  // Each unit three times over leaves M as it is but makes units the larger side.
  const std::vector<std::vector<int>> few = {{0, 1, 2}, {2, 3, 4}, {0, 4, 5}};
  std::vector<std::vector<int>> many;
  for (int i = 0; i < 3; ++i) many.insert(many.end(), few.begin(), few.end());
  EXPECT_NEAR(SpectralGap(6, few), SpectralGap(6, many), 1e-12);
}

TEST(MaskGraphTest, FactorsAreMeansOverMaskableElements) {
  const auto plan = MakeMaskPlan(UniformShape(8), {.workers = 8, .coverage = 3.0 / 8});
  ASSERT_OK(plan);
  const MaskGraph graph = AnalyseMaskGraph(*plan);
  EXPECT_NEAR(graph.variance_factor, 8.0 / 3, 1e-12);
  EXPECT_NEAR(graph.bias_factor, 5.0 / (3 * 7), 1e-12);
}

TEST(MaskGraphTest, NothingMaskableIsDataParallelism) {
  const auto plan = MakeMaskPlan(UniformShape(2), {.workers = 4, .coverage = 0.5});
  ASSERT_OK(plan);
  const MaskGraph graph = AnalyseMaskGraph(*plan);
  EXPECT_EQ(graph.gap, 1);
  EXPECT_EQ(graph.variance_factor, 1);
  EXPECT_EQ(graph.bias_factor, 0);
}

}  // namespace
}  // namespace tessera::plan

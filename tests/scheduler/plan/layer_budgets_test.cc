#include "scheduler/plan/layer_budgets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "scheduler/plan/counter_random.h"

namespace tessera::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

double Uniform(uint64_t trial, uint64_t what, uint64_t index = 0) {
  return static_cast<double>(CounterRandom(11, trial, what, index) >> 11) * 0x1p-53;
}

struct Case {
  double density;
  std::vector<LayerDemand> layers;
};

// Layers of very different sizes and importances; bounds that can be met.
Case RandomCase(uint64_t trial) {
  Case result;
  result.density = 0.05 + 0.9 * Uniform(trial, 0);
  const int layers = 1 + static_cast<int>(20 * Uniform(trial, 1));
  for (int l = 0; l < layers; ++l) {
    LayerDemand layer;
    layer.elements = 1 + static_cast<int64_t>(std::pow(10, 5 * Uniform(trial, 2, l)));
    layer.importance = Uniform(trial, 3, l) < 0.2 ? 0 : std::pow(10, 6 * Uniform(trial, 4, l) - 3);
    layer.floor = 0.9 * result.density * Uniform(trial, 5, l);
    layer.ceiling = result.density + (1 - result.density) * Uniform(trial, 6, l);
    result.layers.push_back(layer);
  }
  // Rounding to whole elements must not make the bounds impossible.
  result.layers.push_back({.elements = 1000, .importance = 1, .floor = 0, .ceiling = 1});
  return result;
}

int64_t Elements(const std::vector<LayerDemand>& layers) {
  int64_t sum = 0;
  for (const LayerDemand& layer : layers) sum += layer.elements;
  return sum;
}

TEST(LayerBudgetsTest, WithoutStatisticsEveryLayerHasTheDensity) {
  const std::vector<LayerDemand> layers{{.elements = 100}, {.elements = 1000}, {.elements = 10}};
  EXPECT_THAT(*LayerBudgets(0.3, layers), ElementsAre(30, 300, 3));
}

// Water at 0.4 per unit of importance would give 40, 40 and 160 of 240: the third overflows its ceiling of
// 100, and the surplus of 60 raises the level of the other two alike.
TEST(LayerBudgetsTest, WhatACeilingTurnsAwayGoesToTheOthersByImportance) {
  const std::vector<LayerDemand> layers{{.elements = 300, .importance = 100},
                                        {.elements = 300, .importance = 100},
                                        {.elements = 200, .importance = 400, .ceiling = 0.5}};
  EXPECT_THAT(*LayerBudgets(0.3, layers), ElementsAre(70, 70, 100));
}

TEST(LayerBudgetsTest, AFloorIsPaidForByTheOthersByImportance) {
  const std::vector<LayerDemand> layers{{.elements = 1000, .importance = 1, .floor = 0.1},
                                        {.elements = 1000, .importance = 100},
                                        {.elements = 1000, .importance = 300}};
  EXPECT_THAT(*LayerBudgets(0.3, layers), ElementsAre(100, 200, 600));
}

TEST(LayerBudgetsTest, ALayerKeptWholeIsWhole) {
  const std::vector<LayerDemand> layers{{.elements = 50, .importance = 0, .floor = 1},
                                        {.elements = 950, .importance = 7}};
  EXPECT_THAT(*LayerBudgets(0.2, layers), ElementsAre(50, 150));
}

TEST(LayerBudgetsTest, BudgetsSumExactlyAndKeepTheirBounds) {
  for (uint64_t trial = 0; trial < 2000; ++trial) {
    const Case c = RandomCase(trial);
    const auto kept = LayerBudgets(c.density, c.layers);
    if (!kept.ok()) continue;  // tiny layers: rounding made the bounds impossible
    ASSERT_EQ(std::accumulate(kept->begin(), kept->end(), int64_t{0}),
              std::llround(c.density * static_cast<double>(Elements(c.layers))))
        << "trial " << trial;
    for (size_t l = 0; l < kept->size(); ++l) {
      const auto n = static_cast<double>(c.layers[l].elements);
      ASSERT_GE((*kept)[l], std::ceil(c.layers[l].floor * n - 1e-6)) << "trial " << trial << " layer " << l;
      ASSERT_LE((*kept)[l], std::max(1.0, c.layers[l].ceiling * n + 1))
          << "trial " << trial << " layer " << l;
      ASSERT_GE((*kept)[l], 1);
    }
  }
}

TEST(LayerBudgetsTest, NoLayerLosesWhenTheDensityRises) {
  for (uint64_t trial = 0; trial < 500; ++trial) {
    const Case c = RandomCase(trial);
    const auto less = LayerBudgets(c.density, c.layers);
    const auto more = LayerBudgets(std::min(1.0, c.density + 0.03 * Uniform(trial, 7)), c.layers);
    if (!less.ok() || !more.ok()) continue;
    for (size_t l = 0; l < less->size(); ++l) ASSERT_LE((*less)[l], (*more)[l]) << "trial " << trial;
  }
}

TEST(LayerBudgetsTest, MoreImportanceNeverGetsLess) {
  for (uint64_t trial = 0; trial < 500; ++trial) {
    Case c = RandomCase(trial);
    const auto before = LayerBudgets(c.density, c.layers);
    if (!before.ok()) continue;
    c.layers[0].importance *= 1.7;
    ASSERT_GE((*LayerBudgets(c.density, c.layers))[0], (*before)[0]) << "trial " << trial;
  }
}

TEST(LayerBudgetsTest, LayersAlikeDifferByAtMostOneElement) {
  for (uint64_t trial = 0; trial < 500; ++trial) {
    Case c = RandomCase(trial);
    c.layers.push_back(c.layers[0]);
    const auto kept = LayerBudgets(c.density, c.layers);
    if (!kept.ok()) continue;
    ASSERT_LE(std::abs(kept->front() - kept->back()), 1) << "trial " << trial;
  }
}

TEST(LayerBudgetsTest, ImpossibleBoundsNameTheDensityThatWouldDo) {
  const std::vector<LayerDemand> whole{{.elements = 400, .floor = 1}, {.elements = 600}};
  EXPECT_THAT(LayerBudgets(0.3, whole).status().message(), HasSubstr("use density 0.401"));
  const std::vector<LayerDemand> low{{.elements = 400, .ceiling = 0.1}, {.elements = 600, .ceiling = 0.1}};
  EXPECT_THAT(LayerBudgets(0.3, low).status().message(), HasSubstr("use density 0.1"));
  EXPECT_FALSE(LayerBudgets(0, low).ok());
  EXPECT_FALSE(LayerBudgets(1.01, low).ok());
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(LayerBudgets(0.3, std::vector<LayerDemand>{{.elements = 4, .importance = infinite}}).ok());
}

TEST(LayerBudgetsTest, PartsOfALayerSumToItsBudget) {
  for (uint64_t trial = 0; trial < 200; ++trial) {
    const auto elements = 1 + static_cast<int64_t>(1e10 * Uniform(trial, 0));
    const auto kept = 1 + static_cast<int64_t>(static_cast<double>(elements - 1) * Uniform(trial, 1));
    const int64_t cut = static_cast<int64_t>(static_cast<double>(elements) * Uniform(trial, 2));
    const int64_t first = KeptOfPart(elements, kept, 0, cut),
                  rest = KeptOfPart(elements, kept, cut, elements);
    ASSERT_EQ(first + rest, kept);
    ASSERT_LE(first, cut);
    ASSERT_LE(rest, elements - cut);
  }
}

}  // namespace
}  // namespace tessera::plan

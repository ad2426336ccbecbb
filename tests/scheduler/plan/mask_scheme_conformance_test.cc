// What every registered mask scheme must hold, over many random shapes, seeds and worker counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "scheduler/plan/counter_random.h"
#include "scheduler/plan/mask_graph.h"
#include "scheduler/plan/mask_plan.h"
#include "scheduler/plan/mask_scheme.h"
#include "tests/scheduler/plan/shapes.h"
#include "tests/status.h"

namespace tessera::plan {
namespace {

constexpr int kTrials = 150;

uint64_t Draw(uint64_t trial, uint64_t what, uint64_t index = 0) {
  return CounterRandom(2024, trial, what, index);
}
double Uniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

ModelShape RandomShape(uint64_t trial, bool equal_blocks) {
  ModelShape shape{.model = "random"};
  const int blocks = 1 + static_cast<int>(Draw(trial, 0) % 24);
  shape.parameters.push_back({.name = "base", .dims = {1 + static_cast<int64_t>(Draw(trial, 1) % 5000)}});
  shape.base_flops_per_token = static_cast<double>(Draw(trial, 2) % 5000);
  for (int b = 0; b < blocks; ++b) {
    const uint64_t at = equal_blocks ? 0 : b;
    const std::string name = "block." + std::to_string(b);
    shape.parameters.push_back(
        {.name = name, .dims = {1 + static_cast<int64_t>(Draw(trial, 3, at) % 3000)}, .block = b});
    shape.blocks.push_back({.name = name,
                            .maskable = equal_blocks || Draw(trial, 4, b) % 8 != 0,
                            .flops_per_token = 1 + static_cast<double>(Draw(trial, 5, at) % 3000)});
  }
  return shape;
}

MaskRequest RandomRequest(uint64_t trial, Scheme scheme) {
  MaskRequest request{
      .workers = 1 + static_cast<int>(Draw(trial, 6) % 10), .scheme = scheme, .seed = Draw(trial, 7)};
  const int n = request.workers;
  request.min_holders = 1 + static_cast<int>(Draw(trial, 8) % n);
  const double least = static_cast<double>(request.min_holders) / n;
  const bool whole = Draw(trial, 9) % 2 == 0;
  request.coverage = least + (1 - least) * Uniform(Draw(trial, 10));
  if (whole)
    request.coverage =
        static_cast<double>(request.min_holders + Draw(trial, 10) % (n - request.min_holders + 1)) / n;
  request.ends_always_on = Draw(trial, 11) % 2 == 0;
  if (scheme == Scheme::kFull) request.coverage = 1;
  return request;
}

class MaskSchemeTest : public ::testing::TestWithParam<const MaskScheme*> {
 protected:
  Scheme scheme() const { return GetParam()->scheme(); }
};

TEST_P(MaskSchemeTest, HoldersAreSortedDistinctInRangeAndEnough) {
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    const MaskRequest request = RandomRequest(trial, scheme());
    const auto plan = MakeMaskPlan(RandomShape(trial, false), request);
    ASSERT_OK(plan) << plan.status() << " in trial " << trial;
    for (int u = 0; u < static_cast<int>(plan->units().size()); ++u) {
      const auto holders = plan->Holders(u);
      ASSERT_GE(static_cast<int>(holders.size()), request.min_holders);
      ASSERT_TRUE(std::is_sorted(holders.begin(), holders.end()));
      ASSERT_EQ(std::adjacent_find(holders.begin(), holders.end()), holders.end());
      ASSERT_GE(holders.front(), 0);
      ASSERT_LT(holders.back(), request.workers);
      ASSERT_TRUE(!plan->units()[u].always_on || static_cast<int>(holders.size()) == request.workers);
      for (int w = 0; w < request.workers; ++w) {
        ASSERT_EQ(plan->Holds(w, u), std::count(holders.begin(), holders.end(), w) == 1);
      }
    }
  }
}

TEST_P(MaskSchemeTest, MeanCoverageIsTheOneAskedFor) {
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    const MaskRequest request = RandomRequest(trial, scheme());
    const auto plan = MakeMaskPlan(RandomShape(trial, false), request);
    ASSERT_OK(plan);
    double maskable = 0;
    double largest = 0;
    for (const Unit& unit : plan->units()) {
      if (unit.always_on) continue;
      maskable += static_cast<double>(unit.elements);
      largest = std::max(largest, static_cast<double>(unit.elements));
    }
    if (maskable == 0) continue;
    double mean = 0;
    for (int w = 0; w < request.workers; ++w) {
      ASSERT_GE(plan->Coverage(w), 0);
      ASSERT_LE(plan->Coverage(w), 1);
      mean += plan->Coverage(w) / request.workers;
    }
    // See holder_counts.h.
    ASSERT_NEAR(mean, request.coverage, largest / maskable / request.workers / 2 + 1e-9) << "trial " << trial;
  }
}

TEST_P(MaskSchemeTest, EqualBlocksSpreadWithinOneBlockOfEachOther) {
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    MaskRequest request = RandomRequest(trial, scheme());
    // Whole holder counts; cyclic windows of two lengths may differ by two.
    request.coverage = std::max(1.0, std::floor(request.coverage * request.workers + 1e-9)) / request.workers;
    const ModelShape shape = RandomShape(trial, true);
    const auto plan = MakeMaskPlan(shape, request);
    ASSERT_OK(plan);
    double least = std::numeric_limits<double>::infinity();
    double most = 0;
    for (int w = 0; w < request.workers; ++w) {
      least = std::min(least, plan->FlopsPerToken(w));
      most = std::max(most, plan->FlopsPerToken(w));
    }
    ASSERT_LE(most - least, shape.blocks[0].flops_per_token + 1e-6) << "trial " << trial;
  }
}

TEST_P(MaskSchemeTest, IsAFunctionOfItsInputsAlone) {
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    const MaskRequest request = RandomRequest(trial, scheme());
    const auto first = MakeMaskPlan(RandomShape(trial, false), request);
    const auto second = MakeMaskPlan(RandomShape(trial, false), request);
    ASSERT_OK(first);
    ASSERT_OK(second);
    ASSERT_EQ(first->Fingerprint(), second->Fingerprint());
  }
}

TEST_P(MaskSchemeTest, FullCoverageIsDataParallelism) {
  for (int workers : {1, 2, 5}) {
    const auto plan =
        MakeMaskPlan(RandomShape(1, false), {.workers = workers, .scheme = scheme(), .coverage = 1});
    ASSERT_OK(plan);
    for (int w = 0; w < workers; ++w) EXPECT_EQ(plan->ParameterShare(w), 1);
    EXPECT_NEAR(AnalyseMaskGraph(*plan).gap, 1, 1e-12);
  }
}

TEST_P(MaskSchemeTest, StaysWithinGivenMemoryOrNamesWhoDoesNot) {
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    MaskRequest request = RandomRequest(trial, scheme());
    const ModelShape shape = RandomShape(trial, false);
    const double whole = static_cast<double>(shape.elements() * request.bytes_per_element);
    // From clearly too little to plenty; equal, so that every scheme takes it.
    const auto usable = static_cast<int64_t>(whole * (0.3 + Uniform(Draw(trial, 12))));
    request.capacities.assign(request.workers, {.usable_bytes = std::max<int64_t>(1, usable)});
    const auto plan = MakeMaskPlan(shape, request);
    if (!plan.ok()) {
      ASSERT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted) << plan.status();
      ASSERT_NE(std::string(plan.status().message()).find("worker"), std::string::npos);
      ASSERT_NE(std::string(plan.status().message()).find("bytes are missing"), std::string::npos);
      continue;
    }
    for (int w = 0; w < request.workers; ++w) {
      ASSERT_LE(plan->Elements(w) * request.bytes_per_element, request.capacities[w].usable_bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, MaskSchemeTest, ::testing::ValuesIn(MaskSchemes()),
                         [](const auto& info) { return std::string(info.param->name()); });

TEST(MaskSchemeRegistryTest, HoldsTheFiveSchemes) {
  EXPECT_EQ(MaskSchemes().size(), 5u);
  EXPECT_EQ(FindMaskScheme(Scheme::kSizeAware)->name(), "size_aware");
}

// Unequal workers: what the schemes that serve them promise.
TEST(UnequalWorkersTest, SizeAwareLoadsAreProportionalToSpeedWhereBlocksAllow) {
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    const int n = 2 + static_cast<int>(Draw(trial, 20) % 7);
    ModelShape shape{.model = "equal"};
    for (int b = 0; b < 48; ++b) {
      shape.parameters.push_back({.name = std::to_string(b), .dims = {100}, .block = b});
      shape.blocks.push_back({.name = std::to_string(b), .flops_per_token = 100});
    }
    MaskRequest request{.workers = n, .scheme = Scheme::kSizeAware, .ends_always_on = false, .seed = trial};
    request.coverage = 1.0 / n;  // one holder: no worker's share is capped by holding everything
    double speeds = 0;
    for (int w = 0; w < n; ++w) {
      request.capacities.push_back({.relative_speed = 0.5 + 1.5 * Uniform(Draw(trial, 21, w))});
      speeds += request.capacities[w].relative_speed;
    }
    const auto plan = MakeMaskPlan(shape, request);
    ASSERT_OK(plan);
    for (int w = 0; w < n; ++w) {
      ASSERT_NEAR(plan->FlopsPerToken(w) / 100, 48 * request.capacities[w].relative_speed / speeds, 1.0)
          << "worker " << w << " in trial " << trial;
    }
  }
}

TEST(UnequalWorkersTest, SizeAwareFitsUnequalMemoriesWhenOnePlanIsKnownToFit) {
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    // A plan for equal workers shows a division that fits; ask for it back with a little room.
    MaskRequest request = RandomRequest(trial, Scheme::kRandomBalanced);
    const ModelShape shape = RandomShape(trial, false);
    const auto known = MakeMaskPlan(shape, request);
    ASSERT_OK(known);
    int64_t largest = 0;
    for (const Unit& unit : known->units()) largest = std::max(largest, unit.elements);
    request.scheme = Scheme::kSizeAware;
    for (int w = 0; w < request.workers; ++w) {
      request.capacities.push_back(
          {.usable_bytes = (known->Elements(w) + largest) * request.bytes_per_element});
    }
    const auto plan = MakeMaskPlan(shape, request);
    ASSERT_OK(plan) << plan.status() << " in trial " << trial;
  }
}

TEST(SeedTest, ChangesWhatRandomBalancedDraws) {
  int changed = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    MaskRequest request{.workers = 8, .scheme = Scheme::kRandomBalanced, .coverage = 0.5, .seed = seed};
    const uint64_t one = MakeMaskPlan(testing::UniformShape(12), request)->Fingerprint();
    request.seed += 100;
    changed += one != MakeMaskPlan(testing::UniformShape(12), request)->Fingerprint();
  }
  EXPECT_GE(changed, 19);
}

}  // namespace
}  // namespace tessera::plan

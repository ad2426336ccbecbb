// The constrained placement: its promises over random instances, against brute force and against cyclic.
#include "scheduler/plan/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/counter_random.h"
#include "scheduler/plan/holder_counts.h"
#include "scheduler/plan/mask_graph.h"
#include "scheduler/plan/mask_scheme.h"

namespace tessera::plan {
namespace {

using ::testing::HasSubstr;
using Holders = std::vector<std::vector<int>>;

class Dice {
 public:
  explicit Dice(uint64_t trial) : trial_(trial) {}
  int64_t Between(int64_t low, int64_t high) { return low + static_cast<int64_t>(Next() % (high - low + 1)); }
  double Uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(Next() >> 11) * 0x1p-53);
  }
  bool OneIn(int n) { return Next() % n == 0; }

 private:
  uint64_t Next() { return CounterRandom(4711, trial_, count_++); }
  const uint64_t trial_;
  uint64_t count_ = 0;
};

struct Sizes {
  int workers = 8;
  int units = 16;
};

// Memory is scarce for some workers, links are slow for some, and some figures are unknown.
PlacementRequest RandomRequest(uint64_t trial, Sizes most, double scarcity = 1) {
  Dice dice(trial);
  PlacementRequest request;
  request.seed = trial;
  const int workers = static_cast<int>(dice.Between(1, most.workers));
  const int units = static_cast<int>(dice.Between(1, most.units));
  const bool equal_units = dice.OneIn(3);
  int64_t bytes = 0;
  for (int u = 0; u < units; ++u) {
    const int64_t elements = equal_units && u > 0 ? request.units[0].elements : dice.Between(50, 400);
    request.units.push_back({.elements = elements,
                             .bytes = 16 * elements,
                             .bytes_per_sample = dice.OneIn(2) ? 0 : elements,
                             .flops_per_sample = dice.Uniform(1, 3) * static_cast<double>(elements),
                             .sync_bytes = 4 * elements});
    bytes += request.units[u].bytes + request.units[u].bytes_per_sample;
  }
  request.always_on = {.elements = 100, .bytes = 1600, .flops_per_sample = 300, .sync_bytes = 400};
  request.min_holders = static_cast<int>(dice.Between(1, workers));
  const double least = static_cast<double>(request.min_holders) / workers;
  request.coverage = dice.Uniform(least, 1);
  for (int w = 0; w < workers; ++w) {
    PlacementWorker worker;
    const double room = dice.Uniform(0.5, 1.6) * request.coverage * scarcity;
    worker.memory_bytes = dice.OneIn(4) ? 0 : 2000 + static_cast<int64_t>(room * static_cast<double>(bytes));
    worker.flops_per_second = dice.OneIn(5) ? 0 : dice.Uniform(500, 2000);
    worker.bytes_per_second = dice.OneIn(5) ? 0 : dice.Uniform(200, 5000);
    request.workers.push_back(worker);
  }
  request.min_gap = dice.OneIn(4) ? dice.Uniform(0, 0.6) : 0;
  request.safety_margin = dice.OneIn(2) ? 0 : 0.05;
  return request;
}

int64_t UsableBytes(const PlacementRequest& request, int worker) {
  int64_t bytes = request.workers[worker].memory_bytes;
  for (const PlacementWorker& other : request.workers) {
    if (request.workers[worker].memory_bytes > 0 || other.memory_bytes == 0) continue;
    if (bytes == 0 || other.memory_bytes < bytes) bytes = other.memory_bytes;  // unknown: the least known
  }
  if (bytes == 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::floor(static_cast<double>(bytes) * (1 - request.safety_margin)));
}

int64_t NeededBytes(const PlacementRequest& request, const Holders& holders, int worker, int64_t samples) {
  int64_t bytes = request.always_on.bytes + samples * request.always_on.bytes_per_sample;
  for (size_t u = 0; u < holders.size(); ++u) {
    if (!std::binary_search(holders[u].begin(), holders[u].end(), worker)) continue;
    bytes += request.units[u].bytes + samples * request.units[u].bytes_per_sample;
  }
  return bytes;
}

std::vector<int> Counts(const PlacementRequest& request) {
  std::vector<int64_t> elements;
  for (const PlacementUnit& unit : request.units) elements.push_back(unit.elements);
  return HolderCounts(request.coverage, static_cast<int>(request.workers.size()), elements);
}

void ExpectConstraintsHold(const PlacementRequest& request, const Placement& placement) {
  const int workers = static_cast<int>(request.workers.size());
  PlacementRequest placed = request;
  placed.coverage = placement.coverage;
  const std::vector<int> counts = Counts(placed);
  for (size_t u = 0; u < placement.holders.size(); ++u) {
    const std::vector<int>& holders = placement.holders[u];
    ASSERT_EQ(static_cast<int>(holders.size()), counts[u]);
    ASSERT_GE(static_cast<int>(holders.size()), request.min_holders);
    ASSERT_TRUE(std::is_sorted(holders.begin(), holders.end()));
    ASSERT_EQ(std::set<int>(holders.begin(), holders.end()).size(), holders.size());
    ASSERT_TRUE(holders.front() >= 0 && holders.back() < workers);
  }
  for (int w = 0; w < workers; ++w) {
    ASSERT_LE(NeededBytes(request, placement.holders, w, placement.samples[w]), UsableBytes(request, w))
        << "worker " << w;
  }
  ASSERT_GE(placement.gap, request.min_gap - 1e-9);
  ASSERT_NEAR(placement.gap, SpectralGap(workers, placement.holders), 1e-9);
  const std::set<std::vector<int>> sets(placement.holders.begin(), placement.holders.end());
  if (request.max_holder_sets > 0) ASSERT_LE(static_cast<int>(sets.size()), request.max_holder_sets);
  const std::vector<double> seconds = SecondsPerStep(placed, placement.holders, placement.samples);
  for (int w = 0; w < workers; ++w) ASSERT_NEAR(seconds[w], placement.seconds[w], 1e-6 * seconds[w] + 1e-9);
}

// Of all placements with these holder counts that fit and mix, the fastest; infinity if there is none.
double BruteForce(const PlacementRequest& request) {
  const int workers = static_cast<int>(request.workers.size());
  const int units = static_cast<int>(request.units.size());
  const std::vector<int> counts = Counts(request);
  const std::vector<int64_t> samples(workers, request.samples);
  double best = std::numeric_limits<double>::infinity();
  Holders holders(units);
  const std::function<void(int)> visit = [&](int u) {
    if (u == units) {
      for (int w = 0; w < workers; ++w) {
        if (NeededBytes(request, holders, w, request.samples) > UsableBytes(request, w)) return;
      }
      const std::vector<double> seconds = SecondsPerStep(request, holders, samples);
      const double slowest = *std::max_element(seconds.begin(), seconds.end());
      if (slowest < best && SpectralGap(workers, holders) >= request.min_gap) best = slowest;
      return;
    }
    for (int mask = 0; mask < (1 << workers); ++mask) {
      if (__builtin_popcount(mask) != counts[u]) continue;
      holders[u].clear();
      for (int w = 0; w < workers; ++w) {
        if (mask >> w & 1) holders[u].push_back(w);
      }
      visit(u + 1);
    }
  };
  visit(0);
  return best;
}

TEST(PlacementTest, ConstraintsHoldOrTheBindingOneIsNamed) {
  int placed = 0;
  int refused = 0;
  for (uint64_t trial = 0; trial < 600; ++trial) {
    const PlacementRequest request = RandomRequest(trial, {.workers = 10, .units = 24});
    const auto answer = Place(request);
    ASSERT_TRUE(answer.ok()) << answer.status();
    ASSERT_NE(answer->placement.has_value(), answer->infeasibility.has_value());
    if (answer->placement) {
      ++placed;
      ASSERT_NO_FATAL_FAILURE(ExpectConstraintsHold(request, *answer->placement)) << "trial " << trial;
      continue;
    }
    ++refused;
    ASSERT_FALSE(answer->infeasibility->message.empty());
  }
  // Neither outcome may be rare, or this test says nothing.
  EXPECT_GT(placed, 100);
  EXPECT_GT(refused, 100);
}

TEST(PlacementTest, SmallInstancesComeWithinFivePercentOfBruteForceAndProofsAreTrue) {
  double worst = 1;
  int feasible = 0;
  int proven = 0;
  for (uint64_t trial = 0; trial < 400; ++trial) {
    const PlacementRequest request = RandomRequest(10'000 + trial, {.workers = 4, .units = 5}, 1.2);
    const double best = BruteForce(request);
    const auto answer = Place(request);
    ASSERT_TRUE(answer.ok()) << answer.status();
    if (answer->infeasibility) {
      ASSERT_TRUE(std::isinf(best)) << "trial " << trial << ": " << answer->infeasibility->message;
      proven += answer->infeasibility->proven ? 1 : 0;
      ASSERT_TRUE(answer->infeasibility->proven)
          << "trial " << trial << ": " << answer->infeasibility->message;
      continue;
    }
    ++feasible;
    ASSERT_LE(answer->placement->step_seconds, best * 1.05 + 1e-9) << "trial " << trial;
    worst = std::max(worst, answer->placement->step_seconds / best);
  }
  EXPECT_GT(feasible, 100);
  EXPECT_GT(proven, 50);
  RecordProperty("worst_ratio_to_brute_force", absl::StrCat(worst));
  printf("worst ratio to brute force: %.4f over %d feasible, %d proven infeasible\n", worst, feasible,
         proven);
}

TEST(PlacementTest, NearestChangesReallyFitAndNoLargerSampleCountDoes) {
  int coverages = 0;
  int samples = 0;
  int workers = 0;
  for (uint64_t trial = 0; trial < 300; ++trial) {
    PlacementRequest request = RandomRequest(20'000 + trial, {.workers = 6, .units = 12}, 0.8);
    request.samples = 4;
    const auto answer = Place(request);
    ASSERT_TRUE(answer.ok());
    if (!answer->infeasibility) continue;
    const Infeasibility& why = *answer->infeasibility;
    if (why.nearest_coverage > 0) {
      ++coverages;
      PlacementRequest smaller = request;
      smaller.coverage = why.nearest_coverage;
      const auto again = Place(smaller);
      ASSERT_TRUE(again.ok() && again->placement) << "trial " << trial;
      ExpectConstraintsHold(smaller, *again->placement);
    }
    if (why.nearest_samples > 0) {
      ++samples;
      PlacementRequest fewer = request;
      fewer.samples = why.nearest_samples;
      ASSERT_TRUE(Place(fewer)->placement) << "trial " << trial;
      fewer.samples = why.nearest_samples + 1;
      ASSERT_FALSE(Place(fewer)->placement) << "trial " << trial;
    }
    workers += why.nearest_workers > 0 ? 1 : 0;
    ASSERT_TRUE(why.nearest_workers == 0 || why.nearest_workers > static_cast<int>(request.workers.size()));
  }
  EXPECT_GT(coverages, 30);
  EXPECT_GT(samples, 10);
  EXPECT_GT(workers, 30);
}

TEST(PlacementTest, IsNeverWorseThanCyclic) {
  int compared = 0;
  for (uint64_t trial = 0; trial < 300; ++trial) {
    PlacementRequest request = RandomRequest(30'000 + trial, {.workers = 12, .units = 32});
    request.min_gap = 0;
    for (PlacementWorker& worker : request.workers) worker.memory_bytes = 0;
    if (trial % 2 == 0) {  // equal workers, as cyclic wants them
      for (PlacementWorker& worker : request.workers)
        worker = {.flops_per_second = 1000, .bytes_per_second = 1000};
    }
    SchemeInput input{.workers = static_cast<int>(request.workers.size()), .holders = Counts(request)};
    for (const PlacementUnit& unit : request.units) {
      input.elements.push_back(unit.elements);
      input.loads.push_back(unit.flops_per_sample);
    }
    input.shares.assign(request.workers.size(), 1.0 / static_cast<double>(request.workers.size()));
    input.limits.assign(request.workers.size(), std::numeric_limits<int64_t>::max());
    const auto cyclic = FindMaskScheme(Scheme::kCyclic)->Assign(input);
    ASSERT_TRUE(cyclic.ok()) << cyclic.status();
    const std::vector<double> seconds =
        SecondsPerStep(request, *cyclic, std::vector<int64_t>(request.workers.size(), request.samples));
    const auto answer = Place(request);
    ASSERT_TRUE(answer.ok() && answer->placement) << "trial " << trial;
    ++compared;
    ASSERT_LE(answer->placement->step_seconds, *std::max_element(seconds.begin(), seconds.end()) * (1 + 1e-9))
        << "trial " << trial;
  }
  EXPECT_EQ(compared, 300);
}

TEST(PlacementTest, EqualRequestsGiveEqualPlacements) {
  for (uint64_t trial = 0; trial < 50; ++trial) {
    const PlacementRequest request = RandomRequest(40'000 + trial, {.workers = 12, .units = 40});
    const auto first = Place(request);
    const auto second = Place(request);
    ASSERT_TRUE(first.ok() && second.ok());
    ASSERT_EQ(first->placement.has_value(), second->placement.has_value());
    if (first->placement) ASSERT_EQ(first->placement->holders, second->placement->holders);
  }
}

PlacementRequest EqualRequest(int workers, int units, double coverage) {
  PlacementRequest request;
  request.coverage = coverage;
  request.always_on = {.elements = 1000, .bytes = 16'000, .flops_per_sample = 2000, .sync_bytes = 4000};
  request.units.assign(units,
                       {.elements = 1000, .bytes = 16'000, .flops_per_sample = 6000, .sync_bytes = 4000});
  request.workers.assign(workers, {.flops_per_second = 1e4, .bytes_per_second = 1e4});
  return request;
}

double HeldUnits(const Placement& placement, int worker) {
  double held = 0;
  for (const auto& holders : placement.holders) held += std::count(holders.begin(), holders.end(), worker);
  return held;
}

TEST(PlacementTest, EqualWorkersAndUnitsReachTheGapOfCyclicMasks) {
  // The oracle of the cyclic scheme: 1 - (sin(pi r/8) / (r sin(pi/8)))^2 with r holders.
  for (int r : {2, 3, 4, 5, 6, 7}) {
    const auto answer = Place(EqualRequest(8, 8, r / 8.0));
    ASSERT_TRUE(answer.ok() && answer->placement);
    const double quotient = std::sin(M_PI * r / 8) / (r * std::sin(M_PI / 8));
    EXPECT_GE(answer->placement->gap, 1 - quotient * quotient - 1e-9) << r << " holders";
    for (int w = 0; w < 8; ++w) EXPECT_EQ(HeldUnits(*answer->placement, w), r);
  }
}

TEST(PlacementTest, ASlowLinkGetsFewerUnitsAndSoDoesASlowWorker) {
  PlacementRequest request = EqualRequest(8, 24, 0.5);
  request.workers[2].bytes_per_second /= 4;
  request.workers[5].flops_per_second /= 2;
  const auto answer = Place(request);
  ASSERT_TRUE(answer.ok() && answer->placement);
  for (int w : {0, 1, 3, 4, 6, 7}) {
    EXPECT_LT(HeldUnits(*answer->placement, 2), HeldUnits(*answer->placement, w));
    EXPECT_LT(HeldUnits(*answer->placement, 5), HeldUnits(*answer->placement, w));
  }
}

TEST(PlacementTest, AutoTakesTheLargestCoverageThatLeavesTheMarginFree) {
  PlacementRequest request = EqualRequest(4, 12, 1);
  request.coverage_auto = true;
  request.safety_margin = 0.1;
  // Always-on and seven of twelve units with the margin; without it eight.
  for (PlacementWorker& worker : request.workers) worker.memory_bytes = 16'000 * 9 - 1;
  const auto with_margin = Place(request);
  ASSERT_TRUE(with_margin.ok() && with_margin->placement);
  EXPECT_NEAR(with_margin->placement->coverage, 7.0 / 12, 1e-9);
  request.safety_margin = 0;
  const auto without = Place(request);
  EXPECT_NEAR(without->placement->coverage, 7.0 / 12, 1e-9);
  for (PlacementWorker& worker : request.workers) worker.memory_bytes = 16'000 * 9;
  EXPECT_NEAR(Place(request)->placement->coverage, 8.0 / 12, 1e-9);
  for (PlacementWorker& worker : request.workers) worker.memory_bytes = 0;  // unknown
  EXPECT_EQ(Place(request)->placement->coverage, 1);
}

TEST(PlacementTest, UnequalMemoryGivesUnequalCoverage) {
  PlacementRequest request = EqualRequest(4, 12, 0.5);
  request.safety_margin = 0;
  for (int w = 0; w < 4; ++w) request.workers[w].memory_bytes = 16'000 * (1 + (w == 0 ? 3 : 7));
  const auto answer = Place(request);
  ASSERT_TRUE(answer.ok() && answer->placement);
  EXPECT_EQ(HeldUnits(*answer->placement, 0), 3);
  for (int w : {1, 2, 3}) EXPECT_EQ(HeldUnits(*answer->placement, w), 7);
}

TEST(PlacementTest, ManyUnitsShareFewHolderSets) {
  PlacementRequest request = EqualRequest(16, 500, 0.5);
  request.max_holder_sets = 12;
  const auto answer = Place(request);
  ASSERT_TRUE(answer.ok() && answer->placement);
  EXPECT_LE(answer->placement->holder_sets, 12);
  ExpectConstraintsHold(request, *answer->placement);
}

TEST(PlacementTest, NeighboursInTheTourShareHolderSets) {
  PlacementRequest request = EqualRequest(8, 8, 0.5);
  request.tour = {0, 4, 1, 5, 2, 6, 3, 7};
  const auto answer = Place(request);
  ASSERT_TRUE(answer.ok() && answer->placement);
  const auto common = [&](int a, int b) {
    int units = 0;
    for (const auto& holders : answer->placement->holders) {
      units += std::binary_search(holders.begin(), holders.end(), a) &&
               std::binary_search(holders.begin(), holders.end(), b);
    }
    return units;
  };
  EXPECT_GT(common(0, 4), common(0, 2));
  EXPECT_GT(common(1, 5), common(1, 3));
}

TEST(PlacementTest, SamplesFollowSpeed) {
  PlacementRequest request = EqualRequest(4, 12, 1);
  request.samples = 8;
  request.balance_samples = true;
  request.workers[3].flops_per_second /= 4;
  for (PlacementWorker& worker : request.workers) worker.bytes_per_second = 1e9;
  PlacementRequest fixed = request;
  fixed.balance_samples = false;
  const auto balanced = Place(request);
  ASSERT_TRUE(balanced.ok() && balanced->placement);
  const std::vector<int64_t>& samples = balanced->placement->samples;
  EXPECT_EQ(std::accumulate(samples.begin(), samples.end(), int64_t{0}), 32);
  EXPECT_LT(samples[3], samples[0]);
  EXPECT_LT(balanced->placement->step_seconds, Place(fixed)->placement->step_seconds);
}

TEST(PlacementTest, LeavesOutWorkersThatSlowTheOthersDown) {
  PlacementRequest request = EqualRequest(6, 12, 0.5);
  request.workers[1].flops_per_second /= 50;
  for (PlacementWorker& worker : request.workers) worker.memory_bytes = 1'000'000;
  request.workers[4].memory_bytes = 100;  // not even the always-on part
  EXPECT_THAT(ChooseWorkers(request, 2), ::testing::ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(ChooseWorkers(request, 5), ::testing::ElementsAre(0, 1, 2, 3, 5));
}

struct BadInput {
  std::string name;
  std::function<void(PlacementRequest&)> spoil;
  std::string says;
};

class BadPlacementTest : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadPlacementTest, IsRefusedByName) {
  PlacementRequest request = EqualRequest(4, 6, 0.5);
  GetParam().spoil(request);
  const auto answer = Place(request);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr(GetParam().says));
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    All, BadPlacementTest,
    ::testing::Values(
        BadInput{"NoWorkers", [](auto& r) { r.workers.clear(); }, "workers: 0 entries"},
        BadInput{"MillionWorkers", [](auto& r) { r.workers.resize(1'000'000); }, "workers: 1000000 entries"},
        BadInput{"TooManyUnits", [](auto& r) { r.units.resize(1'000'000); }, "units: 1000000 entries"},
        BadInput{"CoverageZero", [](auto& r) { r.coverage = 0; }, "coverage: 0"},
        BadInput{"CoverageAboveOne", [](auto& r) { r.coverage = 1.01; }, "coverage: 1.01"},
        BadInput{"CoverageNaN", [](auto& r) { r.coverage = kNaN; }, "coverage: nan"},
        BadInput{"CoverageBelowHolders", [](auto& r) { r.min_holders = 3; },
                 "at least min_holders / workers"},
        BadInput{"HoldersAboveWorkers", [](auto& r) { r.min_holders = 5; }, "min_holders: 5"},
        BadInput{"HoldersZero", [](auto& r) { r.min_holders = 0; }, "min_holders: 0"},
        BadInput{"GapNaN", [](auto& r) { r.min_gap = kNaN; }, "min_gap: nan"},
        BadInput{"GapAboveOne", [](auto& r) { r.min_gap = 1.5; }, "min_gap: 1.5"},
        BadInput{"MarginOne", [](auto& r) { r.safety_margin = 1; }, "safety_margin: 1"},
        BadInput{"MarginNaN", [](auto& r) { r.safety_margin = kNaN; }, "safety_margin: nan"},
        BadInput{"NegativeMemory", [](auto& r) { r.workers[1].memory_bytes = -1; },
                 "workers[1].memory_bytes: -1"},
        BadInput{"AbsurdMemory", [](auto& r) { r.workers[1].memory_bytes = int64_t{1} << 62; },
                 "workers[1].memory_bytes"},
        BadInput{"SpeedNaN", [](auto& r) { r.workers[2].flops_per_second = kNaN; },
                 "workers[2].flops_per_second: nan"},
        BadInput{"LinkInfinite", [](auto& r) { r.workers[0].bytes_per_second = kInfinity; },
                 "workers[0].bytes_per_second: inf"},
        BadInput{"NegativeUnit", [](auto& r) { r.units[0].bytes = -5; }, "units[0].bytes: -5"},
        BadInput{"UnitFlopsNaN", [](auto& r) { r.units[3].flops_per_sample = kNaN; },
                 "units[3].flops_per_sample"},
        BadInput{"NegativeSets", [](auto& r) { r.max_holder_sets = -1; }, "max_holder_sets: -1"},
        BadInput{"NoSamples", [](auto& r) { r.samples = 0; }, "samples: 0"},
        BadInput{"TourTwice",
                 [](auto& r) {
                   r.tour = {0, 1, 1, 2};
                 },
                 "tour"},
        BadInput{"TourShort",
                 [](auto& r) {
                   r.tour = {0, 1};
                 },
                 "tour: 2 entries"}),
    [](const auto& info) { return info.param.name; });

TEST(PlacementTest, AModelWithoutMaskableUnitsIsPlacedIfItFits) {
  PlacementRequest request = EqualRequest(3, 0, 0.5);
  EXPECT_TRUE(Place(request)->placement.has_value());
  for (PlacementWorker& worker : request.workers) worker.memory_bytes = 20'000;
  request.workers[1].memory_bytes = 10'000;
  const auto answer = Place(request);
  ASSERT_TRUE(answer.ok() && answer->infeasibility);
  EXPECT_EQ(answer->infeasibility->constraint, Constraint::kAlwaysOn);
  EXPECT_EQ(answer->infeasibility->worker, 1);
}

TEST(PlacementTest, AnImpossibleGapIsProvenSo) {
  PlacementRequest request = EqualRequest(16, 16, 2.0 / 16);
  request.min_gap = 0.9;
  const auto answer = Place(request);
  ASSERT_TRUE(answer.ok() && answer->infeasibility);
  EXPECT_EQ(answer->infeasibility->constraint, Constraint::kMinGap);
  EXPECT_TRUE(answer->infeasibility->proven);
  ASSERT_GT(answer->infeasibility->nearest_coverage, request.coverage);
  request.coverage = answer->infeasibility->nearest_coverage;
  EXPECT_TRUE(Place(request)->placement.has_value());
}

}  // namespace
}  // namespace tessera::plan

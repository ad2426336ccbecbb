// The constrained placement: its promises over random instances, against brute force and against cyclic.
#include "scheduler/plan/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/counter_random.h"
#include "scheduler/plan/mask_graph.h"
#include "scheduler/plan/mask_scheme.h"
#include "tests/scheduler/plan/placement_checks.h"
#include "tests/status.h"

namespace tessera::plan {
namespace {

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
    ASSERT_OK(answer);
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
    ASSERT_OK(answer);
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
    ASSERT_OK(answer);
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
    ASSERT_OK(cyclic);
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
    ASSERT_OK(first);
    ASSERT_OK(second);
    ASSERT_EQ(first->placement.has_value(), second->placement.has_value());
    if (first->placement) ASSERT_EQ(first->placement->holders, second->placement->holders);
  }
}

}  // namespace
}  // namespace tessera::plan

// Placements whose answer a person can tell, and requests that are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "scheduler/plan/placement.h"
#include "tests/scheduler/plan/placement_checks.h"

namespace tessera::plan {
namespace {

using ::testing::HasSubstr;

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
  for (PlacementWorker& worker : request.workers) worker.memory_bytes = int64_t{16'000} * 9 - 1;
  const auto with_margin = Place(request);
  ASSERT_TRUE(with_margin.ok() && with_margin->placement);
  EXPECT_NEAR(with_margin->placement->coverage, 7.0 / 12, 1e-9);
  request.safety_margin = 0;
  const auto without = Place(request);
  EXPECT_NEAR(without->placement->coverage, 7.0 / 12, 1e-9);
  for (PlacementWorker& worker : request.workers) worker.memory_bytes = int64_t{16'000} * 9;
  EXPECT_NEAR(Place(request)->placement->coverage, 8.0 / 12, 1e-9);
  for (PlacementWorker& worker : request.workers) worker.memory_bytes = 0;  // unknown
  EXPECT_EQ(Place(request)->placement->coverage, 1);
}

TEST(PlacementTest, UnequalMemoryGivesUnequalCoverage) {
  PlacementRequest request = EqualRequest(4, 12, 0.5);
  request.safety_margin = 0;
  for (int w = 0; w < 4; ++w) request.workers[w].memory_bytes = int64_t{16'000} * (1 + (w == 0 ? 3 : 7));
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

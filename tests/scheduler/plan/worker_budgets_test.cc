#include "scheduler/plan/worker_budgets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "scheduler/plan/counter_random.h"

namespace tessera::plan {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

double Uniform(uint64_t trial, uint64_t what, uint64_t index = 0) {
  return static_cast<double>(CounterRandom(13, trial, what, index) >> 11) * 0x1p-53;
}

WorkerBudgetRequest RandomRequest(uint64_t trial) {
  WorkerBudgetRequest request;
  request.elements = 1000 + static_cast<int64_t>(1e6 * Uniform(trial, 0));
  request.density = 0.1 + 0.6 * Uniform(trial, 1);
  request.floor = 0.5 * request.density * Uniform(trial, 2);
  request.levels = 2 + static_cast<int>(3 * Uniform(trial, 3));
  const int workers = 1 + static_cast<int>(10 * Uniform(trial, 4));
  for (int w = 0; w < workers; ++w) {
    WorkerLink link;
    link.rtt_seconds = 0.05 * Uniform(trial, 5, w);
    link.bytes_per_second = std::pow(10, 6 + 3 * Uniform(trial, 6, w));
    if (Uniform(trial, 7, w) < 0.4) {
      const double share = request.floor + (1 - request.floor) * Uniform(trial, 8, w);
      link.usable_bytes =
          static_cast<int64_t>(std::ceil(share * static_cast<double>(request.elements))) * 4 + 4;
    }
    request.workers.push_back(link);
  }
  return request;
}

TEST(WorkerBudgetsTest, EqualWorkersGetEqualBudgets) {
  WorkerBudgetRequest request{.elements = 1000, .density = 0.3, .floor = 0.1};
  request.workers.assign(4, {.rtt_seconds = 0.01, .bytes_per_second = 1e5});
  const WorkerBudgets budgets = *DivideAmongWorkers(request);
  EXPECT_THAT(budgets.kept, Each(300));
  EXPECT_NEAR(budgets.seconds, 0.01 + 300 * 4 / 1e5, 1e-9);
}

TEST(WorkerBudgetsTest, LinksOfWhichNothingIsKnownAreEqual) {
  WorkerBudgetRequest request{.elements = 1000, .density = 0.3};
  request.workers.resize(3);
  const WorkerBudgets budgets = *DivideAmongWorkers(request);
  EXPECT_THAT(budgets.kept, Each(300));
  EXPECT_EQ(budgets.seconds, 0);
}

// Three workers at 30, 30 and 10 kB/s share 0.35 * 3 * 1000 elements of 4 bytes: 4,200 bytes at 70 kB/s
// take 60 ms, in which they send 450, 450 and 150 elements.
TEST(WorkerBudgetsTest, ALinkOfAThirdContributesAThird) {
  WorkerBudgetRequest request{.elements = 1000, .density = 0.35};
  request.workers = {{.bytes_per_second = 30e3}, {.bytes_per_second = 30e3}, {.bytes_per_second = 10e3}};
  const WorkerBudgets budgets = *DivideAmongWorkers(request);
  EXPECT_THAT(budgets.kept, ElementsAre(450, 450, 150));
  EXPECT_NEAR(budgets.seconds, 0.06, 1e-9);
}

TEST(WorkerBudgetsTest, RoundTripsAreTakenOffTheTimeToSend) {
  // 2 * 500 elements in T - 10 ms and T - 30 ms at 100 kB/s: T = 40 ms, 750 and 250.
  WorkerBudgetRequest request{.elements = 1000, .density = 0.5};
  request.workers = {{.rtt_seconds = 0.01, .bytes_per_second = 1e5},
                     {.rtt_seconds = 0.03, .bytes_per_second = 1e5}};
  EXPECT_THAT(DivideAmongWorkers(request)->kept, ElementsAre(750, 250));
}

TEST(WorkerBudgetsTest, FragmentedMemoryIsMadeUpForByTheOthers) {
  WorkerBudgetRequest request{.elements = 1000, .density = 0.3};
  request.workers.assign(3, {.bytes_per_second = 1e5});
  request.workers[1].usable_bytes = 100 * 4 + 3;  // one block for 100 elements
  EXPECT_THAT(DivideAmongWorkers(request)->kept, ElementsAre(400, 100, 400));
}

TEST(WorkerBudgetsTest, TheFloorHoldsWhateverTheLink) {
  WorkerBudgetRequest request{.elements = 1000, .density = 0.3, .floor = 0.1};
  request.workers = {{.bytes_per_second = 1e6}, {.bytes_per_second = 1}};
  EXPECT_THAT(DivideAmongWorkers(request)->kept, ElementsAre(500, 100));
}

TEST(WorkerBudgetsTest, BudgetsSumToTheDensityInFewLevelsWithinTheirBounds) {
  int planned = 0;
  for (uint64_t trial = 0; trial < 2000; ++trial) {
    const WorkerBudgetRequest request = RandomRequest(trial);
    const auto budgets = DivideAmongWorkers(request);
    if (!budgets.ok()) {
      ASSERT_EQ(budgets.status().code(), absl::StatusCode::kResourceExhausted) << budgets.status();
      continue;
    }
    ++planned;
    const auto workers = static_cast<double>(request.workers.size());
    const double wanted = request.density * static_cast<double>(request.elements) * workers;
    const double sum = std::accumulate(budgets->kept.begin(), budgets->kept.end(), 0.0);
    ASSERT_LE(sum, wanted + workers * 1.01) << "trial " << trial;
    ASSERT_GT(sum, wanted - workers * 1.01) << "trial " << trial;
    const std::set<int64_t> levels(budgets->kept.begin(), budgets->kept.end());
    ASSERT_LE(levels.size(), static_cast<size_t>(request.levels));
    for (size_t w = 0; w < request.workers.size(); ++w) {
      const WorkerLink& link = request.workers[w];
      const auto kept = static_cast<double>(budgets->kept[w]);
      const double floor = std::ceil(request.floor * static_cast<double>(request.elements) - 1e-9);
      ASSERT_GE(kept, floor);
      ASSERT_LE(kept, request.elements);
      if (link.usable_bytes >= 0) ASSERT_LE(kept * 4, link.usable_bytes);
      const double bytes = (budgets->seconds - link.rtt_seconds) * link.bytes_per_second;
      ASSERT_LE(kept * 4, std::max(bytes * (1 + 1e-6) + 4, floor * 4))
          << "trial " << trial << " worker " << w;
    }
  }
  EXPECT_GT(planned, 1500);
}

TEST(WorkerBudgetsTest, AWorseWorkerNeverGetsMoreThanABetterOne) {
  for (uint64_t trial = 0; trial < 1000; ++trial) {
    WorkerBudgetRequest request = RandomRequest(trial);
    WorkerLink worse = request.workers[0];
    worse.rtt_seconds *= 1 + Uniform(trial, 20);
    worse.bytes_per_second *= 1 - 0.9 * Uniform(trial, 21);
    if (worse.usable_bytes >= 0 && Uniform(trial, 22) < 0.5) worse.usable_bytes = worse.usable_bytes * 9 / 10;
    request.workers.push_back(worse);
    request.workers.push_back(request.workers[0]);  // and an equal one
    const auto budgets = DivideAmongWorkers(request);
    if (!budgets.ok()) continue;
    const size_t n = request.workers.size();
    ASSERT_LE(budgets->kept[n - 2], budgets->kept[0]) << "trial " << trial;
    ASSERT_EQ(budgets->kept[n - 1], budgets->kept[0]) << "trial " << trial;
  }
}

// With a level for each worker: with fewer, a worker may be lifted by the company it keeps.
TEST(WorkerBudgetsTest, AWorkerThatBecomesWorseNeverGetsMore) {
  for (uint64_t trial = 0; trial < 1000; ++trial) {
    WorkerBudgetRequest request = RandomRequest(trial);
    request.levels = static_cast<int>(request.workers.size());
    const auto before = DivideAmongWorkers(request);
    request.workers[0].bytes_per_second *= 0.7;
    request.workers[0].rtt_seconds += 0.01;
    const auto slower = DivideAmongWorkers(request);
    if (!before.ok() || !slower.ok()) continue;
    ASSERT_LE(slower->kept[0], before->kept[0] + 1) << "trial " << trial;  // 1: rounding
    ASSERT_GE(slower->seconds, before->seconds * (1 - 1e-9)) << "trial " << trial;
  }
}

TEST(WorkerBudgetsTest, WhatMemoryCannotHoldIsRefusedWithWhatItCould) {
  WorkerBudgetRequest request{.elements = 1000, .density = 0.3, .floor = 0.1};
  request.workers = {{.usable_bytes = 100}, {}};
  EXPECT_THAT(DivideAmongWorkers(request).status().message(), HasSubstr("worker 0 has 100 usable bytes"));
  request.workers = {{.usable_bytes = 800}, {.usable_bytes = 800}};
  EXPECT_THAT(DivideAmongWorkers(request).status().message(), HasSubstr("use density 0.2"));
  request.floor = 0.4;
  EXPECT_THAT(DivideAmongWorkers(request).status().message(), HasSubstr("floor 0.4"));
}

}  // namespace
}  // namespace tessera::plan

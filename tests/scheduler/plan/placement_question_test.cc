#include "scheduler/plan/placement_question.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/scheduler/plan/shapes.h"
#include "tests/status.h"

namespace tessera::plan {
namespace {

TEST(PlacementQuestionTest, BalancingSamplesOfWorkersThatAreAlikeEnds) {
  PlacementRequest request;
  request.always_on = {.elements = 10, .bytes = 10, .flops_per_sample = 1};
  request.units.assign(4, {.elements = 10, .bytes = 10, .flops_per_sample = 1});
  request.workers.assign(4, {.memory_bytes = 1000, .flops_per_second = 1});
  request.samples = 8;
  request.balance_samples = true;
  const auto answer = Place(request);
  ASSERT_TRUE(answer.ok() && answer->placement) << answer.status();
  EXPECT_EQ(answer->placement->samples, std::vector<int64_t>(4, 8));
}

TEST(PlacementQuestionTest, ComputingIsWeighedByTheTokensOfAStep) {
  // What a step sends takes a second; what it computes takes longer the more tokens it has.
  const ModelShape shape = testing::UniformShape(10);
  MaskRequest request{.workers = 2, .scheme = Scheme::kPlaced, .coverage = 0.5};
  request.capacities = {{.relative_speed = 1, .bytes_per_second = 1e4},
                        {.relative_speed = 4, .bytes_per_second = 1e3}};
  request.flops_per_second = 1e6;
  request.samples = {8, 8};
  const auto held = [&](double tokens) {
    request.tokens_per_sample = tokens;
    const auto plan = MakeMaskPlan(shape, request);
    EXPECT_OK(plan);
    return plan->Coverage(1);
  };
  EXPECT_LT(held(1), 0.5) << "the slow link decides";
  EXPECT_GT(held(100'000), 0.5) << "the fast processor decides";
}

TEST(PlacementQuestionTest, SamplesWithoutCapacitiesStayAsTheyAre) {
  const auto samples = BalanceSamples(testing::UniformShape(4), {.workers = 3, .scheme = Scheme::kPlaced}, 5);
  ASSERT_OK(samples);
  EXPECT_EQ(*samples, std::vector<int64_t>(3, 5));
}

}  // namespace
}  // namespace tessera::plan

// Masks that change: who holds how much stays, over time everybody holds everything, and what moves is what a
// new holder lacks.
#include "scheduler/plan/mask_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "scheduler/plan/mask_graph.h"
#include "tests/scheduler/plan/shapes.h"
#include "tests/status.h"

namespace tessera::plan {
namespace {

using testing::LlamaShape;
using testing::ResNet18CifarShape;
using testing::UniformShape;

ModelShape SmallLlama() {
  return LlamaShape({.hidden = 32, .layers = 10, .heads = 8, .kv_heads = 8, .ffn = 64, .vocab = 61});
}

MaskPlan Plan(const ModelShape& shape, Granularity granularity, double coverage, int workers = 8,
              Scheme scheme = Scheme::kCyclic) {
  const auto plan = MakeMaskPlan(
      shape, {.workers = workers, .granularity = granularity, .scheme = scheme, .coverage = coverage});
  EXPECT_OK(plan);
  return *plan;
}

std::set<std::vector<int>> Sets(const MaskPlan& plan) {
  const auto sets = plan.HolderSets();
  return {sets.begin(), sets.end()};
}

TEST(MaskScheduleTest, PeriodsBeginAfterEverySoManyStepsAndComeInARing) {
  const MaskSchedule schedule{.every = 10};
  EXPECT_EQ(MaskPeriod(schedule, 0), 0);
  EXPECT_EQ(MaskPeriod(schedule, 9), 0);
  EXPECT_EQ(MaskPeriod(schedule, 10), 1);
  EXPECT_EQ(MaskPeriod(schedule, 10 * kMaskPeriods), 0);
  EXPECT_EQ(MaskPeriod({}, 12345), 0);
  const ModelShape shape = UniformShape(6);
  const MaskPlan first = Plan(shape, Granularity::kBlock, 0.5);
  EXPECT_EQ(MasksOfRun(shape, first, schedule, 10).size(), 1u) << "nothing changes after the last step";
  EXPECT_EQ(MasksOfRun(shape, first, schedule, 11).size(), 2u);
  EXPECT_EQ(MasksOfRun(shape, first, schedule, 100000).size(), static_cast<size_t>(kMaskPeriods));
  EXPECT_EQ(MasksOfRun(shape, first, {}, 100000).size(), 1u);
}

TEST(MaskScheduleTest, EveryWorkerHoldsAsMuchAsBeforeWithTheSameHolderSets) {
  const StepShape step{.batch = 2, .sequence_length = 16};
  for (const Granularity granularity : {Granularity::kBlock, Granularity::kNeuron}) {
    for (const Scheme scheme : {Scheme::kCyclic, Scheme::kRandomBalanced, Scheme::kSizeAware}) {
      for (const double coverage : {0.375, 0.5, 0.7}) {
        const ModelShape shape = SmallLlama();
        const MaskPlan first = Plan(shape, granularity, coverage, 8, scheme);
        ASSERT_TRUE(CanResample(shape, first));
        for (int64_t period = 1; period < 6; ++period) {
          const MaskPlan masks = MasksOfPeriod(shape, first, 1, period);
          EXPECT_NE(masks.Fingerprint(), first.Fingerprint());
          EXPECT_EQ(masks.Fingerprint(), MasksOfPeriod(shape, first, 1, period).Fingerprint());
          EXPECT_EQ(Sets(masks), Sets(first));
          EXPECT_NEAR(AnalyseMaskGraph(masks).gap, AnalyseMaskGraph(first).gap, 1e-9);
          for (int w = 0; w < 8; ++w) {
            EXPECT_EQ(masks.Elements(w), first.Elements(w));
            EXPECT_DOUBLE_EQ(masks.FlopsPerToken(w), first.FlopsPerToken(w));
            EXPECT_EQ(PredictTraffic(masks, w, step), PredictTraffic(first, w, step));
          }
        }
      }
    }
  }
}

// With random windows a worker holds a unit C of the time: of 64 masks 24 +- 3.9, here within four
// deviations.
TEST(MaskScheduleTest, OverTimeEveryWorkerHoldsEveryUnitAsOften) {
  const ModelShape shape = UniformShape(10);
  const MaskPlan first = Plan(shape, Granularity::kBlock, 0.375);
  const auto masks = MasksOfRun(shape, first, {.every = 1, .seed = 5}, 1000);
  for (int u = 0; u < static_cast<int>(first.units().size()); ++u) {
    if (first.units()[u].always_on) continue;
    for (int w = 0; w < 8; ++w) {
      const auto held =
          std::count_if(masks.begin(), masks.end(), [&](const MaskPlan& m) { return m.Holds(w, u); });
      EXPECT_NEAR(static_cast<double>(held), 24, 15.5) << "worker " << w << " unit " << u;
    }
  }
}

TEST(MaskScheduleTest, WhereEveryoneHoldsEverythingNothingMoves) {
  const ModelShape shape = SmallLlama();
  const MaskPlan whole = Plan(shape, Granularity::kNeuron, 1, 4, Scheme::kFull);
  EXPECT_TRUE(CanResample(shape, whole));
  const MaskPlan next = MasksOfPeriod(shape, whole, 1, 1);
  EXPECT_EQ(next.Fingerprint(), whole.Fingerprint());
  EXPECT_TRUE(MovesBetween(shape, whole, next, false).empty());
  EXPECT_TRUE(MovesBetween(shape, whole, next, true).empty());
}

TEST(MaskScheduleTest, BlocksThatAreAllUnlikeCannotTradeButTheirChannelsCan) {
  const ModelShape shape = ResNet18CifarShape();
  EXPECT_FALSE(CanResample(shape, Plan(shape, Granularity::kBlock, 0.5, 4, Scheme::kSizeAware)));
}

// Replays the moves on sets of elements: whoever sends has what it sends, and in the end every holder has
// what it is to hold.
TEST(StateMovesTest, NewHoldersGetExactlyWhatTheyLack) {
  const ModelShape shape = SmallLlama();
  for (const Granularity granularity : {Granularity::kBlock, Granularity::kNeuron}) {
    for (const bool sharded : {false, true}) {
      const MaskPlan first = Plan(shape, granularity, 0.4, 5);
      const MaskPlan second = MasksOfPeriod(shape, first, 3, 1);
      // A first change from nowhere: everything that a plan keeps, as a change of a plan that keeps nothing
      // else.
      const auto moves = MovesBetween(shape, first, second, sharded);
      ASSERT_FALSE(moves.empty());
      const auto back = MovesBetween(shape, second, first, sharded);
      int64_t there = 0, again = 0;
      for (const StateMove& move : moves) {
        EXPECT_NE(move.from, move.to);
        EXPECT_TRUE(first.Holds(move.from, first.slices()[move.slice].unit));
        EXPECT_TRUE(second.Holds(move.to, second.slices()[move.slice].unit));
        if (!sharded) {
          EXPECT_FALSE(first.Holds(move.to, first.slices()[move.slice].unit));
          EXPECT_EQ(move.count, first.slices()[move.slice].elements);
        }
        there += move.count;
      }
      for (const StateMove& move : back) again += move.count;
      if (!sharded) {
        int64_t lacked = 0;
        for (int u = 0; u < static_cast<int>(first.units().size()); ++u) {
          for (int w = 0; w < 5; ++w) {
            if (second.Holds(w, u) && !first.Holds(w, u)) lacked += first.units()[u].elements;
          }
        }
        EXPECT_EQ(there, lacked);
        EXPECT_EQ(there, again) << "holder counts stay";
      }
      // No element comes twice.
      std::map<std::pair<int, int>, std::vector<std::pair<int64_t, int64_t>>> got;
      for (const StateMove& move : moves) got[{move.to, move.slice}].emplace_back(move.first, move.count);
      for (auto& [where, ranges] : got) {
        std::sort(ranges.begin(), ranges.end());
        for (size_t i = 1; i < ranges.size(); ++i) {
          EXPECT_GE(ranges[i].first, ranges[i - 1].first + ranges[i - 1].second);
        }
      }
    }
  }
}

TEST(StateMovesTest, HoldersShareTheSending) {
  const ModelShape shape = UniformShape(18, 1000);
  const MaskPlan first = Plan(shape, Granularity::kBlock, 0.5);
  std::vector<int64_t> sent(8, 0);
  int64_t all = 0;
  for (int64_t period = 0; period < 16; ++period) {
    for (const StateMove& move : MovesBetween(shape, MasksOfPeriod(shape, first, 1, period),
                                              MasksOfPeriod(shape, first, 1, period + 1), false)) {
      sent[move.from] += move.count;
      all += move.count;
    }
  }
  EXPECT_LT(*std::max_element(sent.begin(), sent.end()), 1.3 * static_cast<double>(all) / 8);
}

TEST(StateMovesTest, ResidualsGoFromThoseThatHoldAUnitNoMoreToItsOwner) {
  const ModelShape shape = UniformShape(18, 1000);
  const MaskPlan before = Plan(shape, Granularity::kBlock, 0.5), after = MasksOfPeriod(shape, before, 1, 3);
  std::set<std::pair<int, int>> left;  // rank, slice
  for (const StateMove& move : ResidualMovesBetween(before, after)) {
    const Slice& slice = after.slices()[move.slice];
    EXPECT_TRUE(left.emplace(move.from, move.slice).second);
    EXPECT_TRUE(before.Holds(move.from, slice.unit) && !after.Holds(move.from, slice.unit));
    EXPECT_EQ(move.to, after.Holders(slice.unit)[0]);
    EXPECT_EQ(move.first, 0);
    EXPECT_EQ(move.count, slice.elements);
  }
  size_t gone = 0;
  for (const Slice& slice : before.slices()) {
    for (int rank : before.Holders(slice.unit)) gone += after.Holds(rank, slice.unit) ? 0 : 1;
  }
  EXPECT_EQ(left.size(), gone);
  EXPECT_GT(gone, 0);
}

TEST(StateMovesTest, AChangeNeedsNoMoreThanTheLargestBlocksBesideTheStatesWithoutGradients) {
  const ModelShape shape = UniformShape(10, 1000);
  const MaskPlan first = Plan(shape, Granularity::kBlock, 0.5, 4);
  const StepShape step{.batch = 1, .sequence_length = 1};
  const auto masks = MasksOfRun(shape, first, {.every = 1}, 1000);
  const ResamplingPrediction prediction = PredictResampling(shape, masks, step);
  for (int w = 0; w < 4; ++w) {
    const int64_t states = 3 * 4 * first.Elements(w);
    EXPECT_GT(prediction.workers[w].peak, states);
    EXPECT_LE(prediction.workers[w].peak, states + 12000 * 8);
    EXPECT_GT(prediction.workers[w].sent, 0);
  }
  // Half of all units are held before, so of those held after, half are new.
  EXPECT_NEAR(prediction.moved_share, 0.5, 0.1);
  EXPECT_NEAR(prediction.mean_sent, 0.5 * 12 * 4 * 4 * 1000, 0.1 * 12 * 16000);
}

}  // namespace
}  // namespace tessera::plan

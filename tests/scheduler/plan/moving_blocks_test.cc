#include "scheduler/plan/moving_blocks.h"

#include <gtest/gtest.h>

#include "scheduler/plan/mask_plan.h"
#include "tests/scheduler/plan/shapes.h"

namespace tessera::plan {
namespace {

using testing::LlamaShape;
using testing::UniformShape;

constexpr int64_t kBlock = 4 * 1000;  // bytes of a block of UniformShape

MovingBlocks Of(const ModelShape& shape, const MaskRequest& request, int worker, const StepShape& step) {
  const MaskPlan plan = *MakeMaskPlan(shape, request);
  return {shape, UnitSets(plan), plan.workers(), worker, step};
}

TEST(MovingBlocksTest, WhatIsResidentDoesNotMove) {
  const ModelShape shape = UniformShape(6);
  for (const StepShape& step : {StepShape{}, StepShape{.backward_masking = true}}) {
    const MovingBlocks moving = Of(shape, {.workers = 2, .coverage = 0.5}, 0, step);
    EXPECT_EQ(moving.Largest(), 0);
    EXPECT_EQ(moving.Evaluate(0), 0) << "the ends are everywhere";
  }
}

TEST(MovingBlocksTest, ShardedWeightsAreFilledAheadAndGradientsReducedBehind) {
  const MovingBlocks moving = Of(UniformShape(3), {.workers = 2}, 0, {.sharded = true});
  const int64_t reducing = 2 * kBlock + kBlock / 2;  // whole, what comes in, and the shard of the sum
  EXPECT_EQ(moving.Forward(0), 2 * kBlock) << "itself and the next one";
  EXPECT_EQ(moving.Forward(2), kBlock) << "the last one";
  EXPECT_EQ(moving.Head(), 0) << "nothing is outside the blocks";
  EXPECT_EQ(moving.Backward(2), 3 * kBlock) << "itself with its gradient, and the one before it";
  EXPECT_EQ(moving.Backward(1), 3 * kBlock + reducing);
  EXPECT_EQ(moving.Backward(0), 2 * kBlock + reducing);
  EXPECT_EQ(moving.Reduce(), reducing);
  EXPECT_EQ(moving.Largest(), moving.Backward(1));
  EXPECT_EQ(moving.Evaluate(1), kBlock);
  EXPECT_EQ(moving.Assemble(1), kBlock) << "one set of units is gathered in place";
}

TEST(MovingBlocksTest, AShardOfOneHolderIsNotReduced) {
  const MovingBlocks moving = Of(UniformShape(3), {.workers = 1}, 0, {.sharded = true});
  EXPECT_EQ(moving.Reduce(), 2 * kBlock);
}

TEST(MovingBlocksTest, StreamingMovesAbsentBlocksAloneAndPrefetchesFromOneToTheNext) {
  // Ends everywhere; of the middle the one worker holds blocks 1 and 3, or 2 and 4.
  const ModelShape shape = UniformShape(6);
  const MaskRequest request{.workers = 2, .coverage = 0.5};
  const MaskPlan plan = *MakeMaskPlan(shape, request);
  const MovingBlocks moving = Of(shape, request, 0, {.backward_masking = true, .streamed = true});
  const MovingBlocks masked = Of(shape, request, 0, {});
  EXPECT_EQ(moving.Forward(0), 0) << "an end does not move, so nothing is filled ahead of it";
  EXPECT_EQ(moving.Backward(5), 0);
  int absent = 0;
  for (int block = 1; block <= 4; ++block) {
    if (plan.Holds(0, block + 1)) continue;
    ++absent;
    EXPECT_GE(moving.Forward(block), kBlock);
    EXPECT_LE(moving.Forward(block), 2 * kBlock);
    EXPECT_EQ(masked.Forward(block), 0);
    EXPECT_EQ(masked.Evaluate(block), kBlock) << "an evaluation puts it together";
  }
  EXPECT_EQ(absent, 2);
}

TEST(MovingBlocksTest, ABlockOfSeveralSetsIsPutTogetherFromCopies) {
  const ModelShape shape = LlamaShape({.hidden = 64, .layers = 4, .heads = 4, .kv_heads = 4, .ffn = 128});
  const MaskRequest request{.workers = 2, .granularity = Granularity::kNeuron, .coverage = 0.5};
  const StepShape sharded{.sharded = true};
  const MovingBlocks moving = Of(shape, request, 0, sharded);
  EXPECT_GT(moving.Assemble(1), moving.Evaluate(1));
  EXPECT_GT(moving.Forward(1), moving.Forward(3)) << "copies of the next one are on their way";
}

}  // namespace
}  // namespace tessera::plan

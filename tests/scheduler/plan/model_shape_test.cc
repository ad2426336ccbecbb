#include "scheduler/plan/model_shape.h"

#include <gtest/gtest.h>

#include "scheduler/plan/counter_random.h"
#include "scheduler/plan/fingerprint.h"
#include "tests/scheduler/plan/shapes.h"

namespace tessera::plan {
namespace {

using testing::LlamaShape;
using testing::ResNet18CifarShape;

TEST(ModelShapeTest, Llama134mHasItsPublishedNumberOfParameters) {
  EXPECT_EQ(LlamaShape().elements(), 134105856);
}

TEST(ModelShapeTest, ResNet18OnCifarHasItsPublishedParametersAndBlocks) {
  const ModelShape shape = ResNet18CifarShape();
  EXPECT_EQ(shape.elements(), 11173962);
  EXPECT_EQ(shape.block_elements(0), 73984);
  EXPECT_EQ(shape.block_elements(7), 4720640);
}

TEST(ModelShapeTest, ElementsAreThoseOfBlocksAndOfTheRest) {
  const ModelShape shape = LlamaShape({.layers = 3, .kv_heads = 4, .tied = true});
  int64_t sum = shape.block_elements(kNoBlock);
  for (int b = 0; b < 3; ++b) sum += shape.block_elements(b);
  EXPECT_EQ(shape.elements(), sum);
  EXPECT_EQ(shape.block_elements(kNoBlock), 32000 * 768 + 768);
}

TEST(ModelShapeTest, FingerprintSeesEveryFieldThatDecidesAPlan) {
  const ModelShape shape = LlamaShape();
  const uint64_t original = shape.Fingerprint();
  const auto differs = [&](auto change) {
    ModelShape changed = shape;
    change(changed);
    return changed.Fingerprint() != original;
  };
  EXPECT_TRUE(differs([](ModelShape& s) { s.model = "other"; }));
  EXPECT_TRUE(differs([](ModelShape& s) { s.vocab_size += 1; }));
  EXPECT_TRUE(differs([](ModelShape& s) { s.parameters[3].name += "x"; }));
  EXPECT_TRUE(differs([](ModelShape& s) { s.parameters[3].dims[0] += 1; }));
  EXPECT_TRUE(differs([](ModelShape& s) { s.parameters[3].block = 1; }));
  EXPECT_TRUE(differs([](ModelShape& s) { s.parameters[3].decay = !s.parameters[3].decay; }));
  EXPECT_TRUE(differs([](ModelShape& s) { s.parameters[3].axes[0] = Axis::kChannel; }));
  EXPECT_TRUE(differs([](ModelShape& s) { s.blocks[2].maskable = false; }));
  EXPECT_TRUE(differs([](ModelShape& s) { s.blocks[2].flops_per_token += 1; }));
  EXPECT_TRUE(differs([](ModelShape& s) { s.blocks[2].axes[0].chunks += 1; }));
  EXPECT_TRUE(differs([](ModelShape& s) { s.base_flops_per_token += 1; }));
  EXPECT_TRUE(differs([](ModelShape& s) { s.blocks.pop_back(); }));
}

TEST(ModelShapeTest, FingerprintIgnoresMeasuredActivations) {
  ModelShape shape = LlamaShape();
  const uint64_t original = shape.Fingerprint();
  shape.activations.kinds.push_back({.saved = 5});
  EXPECT_EQ(shape.Fingerprint(), original);
}

// Published values: a build on another platform must reproduce them.
TEST(FingerprintTest, IsTheSameOnEveryPlatform) {
  EXPECT_EQ(SplitMix64(0), 0xe220a8397b1dcdafULL);  // first output of splitmix64 from state 0
  EXPECT_EQ(FingerprintBuilder().Finish(), SplitMix64(0xcbf29ce484222325ULL));
  EXPECT_NE(FingerprintBuilder().Add("ab").Add("c").Finish(),
            FingerprintBuilder().Add("a").Add("bc").Finish());
}

TEST(CounterRandomTest, EveryCounterMatters) {
  const uint64_t value = CounterRandom(1, 2, 3, 4);
  EXPECT_EQ(value, CounterRandom(1, 2, 3, 4));
  EXPECT_NE(value, CounterRandom(2, 2, 3, 4));
  EXPECT_NE(value, CounterRandom(1, 3, 3, 4));
  EXPECT_NE(value, CounterRandom(1, 2, 4, 4));
  EXPECT_NE(value, CounterRandom(1, 2, 3, 5));
  EXPECT_NE(value, CounterRandom(1, 3, 2, 4));
}

}  // namespace
}  // namespace tessera::plan

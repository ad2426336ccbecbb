// What every registered rule must do, and what each is for.
#include "worker/dropping/dropping_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <thread>

#include "proto/tessera/v1/dropping_rules.h"
#include "scheduler/plan/counter_random.h"
#include "tests/status.h"
#include "tests/worker/dropping/bitmaps.h"
#include "worker/dropping/float_view.h"
#include "worker/dropping/sketch.h"

namespace tessera::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> Normal(uint64_t seed, int64_t count) {  // sums of uniforms
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    double sum = -2;
    for (uint64_t j = 0; j < 4; ++j)
      sum += static_cast<double>(plan::CounterRandom(seed, i, j) >> 11) * 0x1p-53;
    values[i] = static_cast<float>(sum);
  }
  return values;
}

// A tensor's state on one rank.
struct State {
  explicit State(int64_t elements, int rank = 0)
      : m(Normal(1, elements)), v(Normal(2, elements)), residual(Normal(100 + rank, elements)) {
    for (float& x : v) x *= x;
  }
  RuleInput Input(int64_t picks, int64_t step = 5) const {
    RuleInput input;
    input.seed = 9;
    input.tensor = 4;
    input.step = step;
    input.elements = static_cast<int64_t>(m.size());
    input.picks = picks;
    input.first_moment = m.data();
    input.second_moment = v.data();
    input.residual.fp32 = residual.data();
    return input;
  }
  std::vector<float> m, v, residual;
};

std::vector<uint64_t> Pick(const DroppingRule& rule, const RuleInput& input) {
  std::vector<uint64_t> words((input.elements + 63) / 64, ~uint64_t{0});
  rule.Pick(input, absl::MakeSpan(words));
  return words;
}

const DroppingRule& Rule(const char* name) { return **FindDroppingRule(name); }

class EveryRuleTest : public testing::TestWithParam<const DroppingRule*> {
 protected:
  // With what travels before picking.
  std::vector<uint64_t> PickOf(const State& state, int64_t picks, int64_t step = 5) const {
    RuleInput input = state.Input(picks, step);
    const std::vector<float> sketch = SketchOf(input);
    input.sketch = sketch;
    return Pick(*GetParam(), input);
  }
};

TEST_P(EveryRuleTest, NeverPicksMoreThanItsShareAndNothingBehindTheEnd) {
  for (const int64_t elements : {1, 63, 64, 65, 1000, 4096}) {
    const State state(elements);
    for (const int64_t picks : {int64_t{0}, elements / 3, elements}) {
      const std::set<int64_t> picked = ElementsOf(PickOf(state, picks));
      const bool chunks = GetParam()->needs().agreement == RuleAgreement::kSketch;
      if (GetParam()->needs().default_share > 0 && !chunks) {
        ASSERT_EQ(picked.size(), picks);
      } else {
        ASSERT_LE(picked.size(), picks);
        if (chunks) {
          ASSERT_GT(picked.size() + 2 * kChunkElements, picks);
        }
      }
      if (!picked.empty()) {
        ASSERT_LT(*picked.rbegin(), elements);
      }
    }
  }
}

TEST_P(EveryRuleTest, PicksTheSameOnEveryThreadAndEveryTime) {
  const State state(5000);
  const std::vector<uint64_t> once = PickOf(state, 1500);
  std::vector<std::vector<uint64_t>> picks(4);
  std::vector<std::thread> threads;
  for (auto& mine : picks) threads.emplace_back([&] { mine = PickOf(state, 1500); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : picks) EXPECT_EQ(mine, once);
}

// Whoever computes picks alone must not look at what the holders have not in common.
TEST_P(EveryRuleTest, HoldersAgreeWhenNothingTravels) {
  if (GetParam()->needs().agreement != RuleAgreement::kAlike) GTEST_SKIP() << "its picks or sketches travel";
  EXPECT_FALSE(GetParam()->needs().residual);
  EXPECT_EQ(PickOf(State(3000, 0), 1000), PickOf(State(3000, 1), 1000));
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryRuleTest, testing::ValuesIn(DroppingRules()),
                         [](const auto& info) { return std::string(info.param->name()); });

TEST(DroppingRuleTest, AllRulesAreRegistered) {
  std::vector<std::string> names;
  for (const DroppingRule* rule : DroppingRules()) names.emplace_back(rule->name());
  EXPECT_THAT(names, ElementsAre("cyclic_top_k", "magnitude", "momentum_ratio", "random", "rotation",
                                 "second_moment", "sketch_top_k"));
  EXPECT_THAT(FindDroppingRule("top").status().message(),
              HasSubstr("'top' is not known; use one of cyclic_top_k"));
}

// Submission refuses by a table of its own, without the worker.
TEST(DroppingRuleTest, SubmissionKnowsTheSameRules) {
  for (const DroppingRule* rule : DroppingRules()) {
    const RuleNeeds needs = rule->needs();
    const spec::DroppingRuleTraits* traits = spec::FindDroppingRule(rule->name());
    ASSERT_NE(traits, nullptr) << rule->name();
    EXPECT_EQ(traits->picks_alone, needs.agreement == RuleAgreement::kNone) << rule->name();
    EXPECT_EQ(traits->needs_moments, needs.first_moment || needs.second_moment) << rule->name();
    EXPECT_EQ(traits->needs_residual, needs.residual) << rule->name();
    EXPECT_EQ(traits->default_share, needs.default_share) << rule->name();
  }
  for (const spec::DroppingRuleTraits& traits : spec::kDroppingRules) {
    EXPECT_OK(FindDroppingRule(traits.name)) << traits.name;
  }
}

TEST(DroppingRuleTest, SecondMomentTakesTheLargestAndRatioTheMostConsistent) {
  State state(4);
  state.v = {1, 9, 4, 0};
  state.m = {0.9f, -0.3f, 1.8f, 0};
  EXPECT_THAT(ElementsOf(Pick(Rule("second_moment"), state.Input(2))), ElementsAre(1, 2));
  EXPECT_THAT(ElementsOf(Pick(Rule("momentum_ratio"), state.Input(2))), ElementsAre(0, 2));
}

TEST(DroppingRuleTest, MagnitudeAndItsTurnsLookAtSizeNotSign) {
  State state(4);
  state.residual = {0.1f, -3, 2, -0.2f};
  EXPECT_THAT(ElementsOf(Pick(Rule("magnitude"), state.Input(2))), ElementsAre(1, 2));
  EXPECT_THAT(ElementsOf(Pick(Rule("cyclic_top_k"), state.Input(1))), ElementsAre(1));
}

TEST(DroppingRuleTest, MagnitudeLooksAtTheGradientAndAtWhatIsLeft) {
  State state(4);
  state.residual = {3, -3, 0.5f, 0};
  const std::vector<float> gradient{-3, -1, 0.25f, 1};
  RuleInput input = state.Input(2);
  input.gradient = gradient.data();
  EXPECT_THAT(ElementsOf(Pick(Rule("magnitude"), input)), ElementsAre(1, 3));  // sums 0, -4, .75, 1
  const std::vector<uint16_t> left{ToBf16(3, 0), ToBf16(-3, 0), ToBf16(0.5f, 0), 0};
  input.residual = {.bf16 = left.data()};
  EXPECT_THAT(ElementsOf(Pick(Rule("magnitude"), input)), ElementsAre(1, 3));
  input.residual = {};
  EXPECT_THAT(ElementsOf(Pick(Rule("magnitude"), input)), ElementsAre(0, 1));  // of equal ones the first
  input.gradient = nullptr;
  EXPECT_THAT(ElementsOf(Pick(Rule("magnitude"), input)), ElementsAre(0, 1));  // nothing to go by
}

TEST(DroppingRuleTest, RandomIsFreshEachStepAndTouchesAllAlike) {
  const State state(2000);
  std::vector<int> counts(2000);
  for (int64_t step = 0; step < 200; ++step) {
    for (int64_t i : ElementsOf(Pick(Rule("random"), state.Input(600, step)))) ++counts[i];
  }
  // Binomial: mean 60, standard deviation 6.5; of 2,000 draws none is seven deviations off.
  for (int count : counts) ASSERT_TRUE(count > 60 - 45 && count < 60 + 45) << count;
}

TEST(SketchTest, TheSumOfSketchesIsTheSketchOfTheSum) {
  const State a(640, 0), b(640, 1);
  State sum(640);
  for (size_t i = 0; i < 640; ++i) sum.residual[i] = a.residual[i] + b.residual[i];
  const std::vector<float> sa = SketchOf(a.Input(0)), sb = SketchOf(b.Input(0)), s = SketchOf(sum.Input(0));
  ASSERT_EQ(s.size(), 40);
  // 64 terms of size 2 in another order: some units in the last place of 128.
  for (size_t i = 0; i < s.size(); ++i) EXPECT_NEAR(sa[i] + sb[i], s[i], 1e-4);
}

TEST(SketchTest, PicksChunksWithLargeResidualsAndWholeOnes) {
  State state(64 * 100 + 10);
  for (float& x : state.residual) x *= 0.01f;
  for (const int64_t chunk : {17, 42}) {
    for (int64_t i = 0; i < 64; ++i) state.residual[chunk * 64 + i] *= 1000;
  }
  RuleInput input = state.Input(2 * 64 + 63);
  const std::vector<float> sketch = SketchOf(input);
  input.sketch = sketch;
  const std::vector<uint64_t> words = Pick(Rule("sketch_top_k"), input);
  for (int64_t word = 0; word < 101; ++word) {
    EXPECT_EQ(words[word], word == 17 || word == 42 ? ~uint64_t{0} : 0) << word;
  }
}

}  // namespace
}  // namespace tessera::worker

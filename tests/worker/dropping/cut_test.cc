#include "worker/dropping/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "scheduler/plan/counter_random.h"
#include "tests/worker/dropping/bitmaps.h"
#include "worker/dropping/float_view.h"

namespace tessera::worker {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;

constexpr int64_t kElements = 4096 + 77;
constexpr int64_t kKept = 1300;

std::vector<float> Values(uint64_t seed) {  // multiples of 1/16 below 16: sums of some are exact in fp32
  std::vector<float> values(kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    values[i] = static_cast<float>(static_cast<int64_t>(plan::CounterRandom(seed, i) % 512) - 256) / 16;
  }
  return values;
}

TEST(CutTest, WithoutAResidualTheRingSumsTheKeptElementsOfAllMicroSteps) {
  const Selection selection = Selection::Make(kElements, kKept, 3);
  const std::vector<float> a = Values(1), b = Values(2);
  std::vector<float> ring(kKept, NAN), expected;
  CutGradient(selection, a.data(), true, {}, ring.data());
  CutGradient(selection, b.data(), false, {}, ring.data());
  CutGradient(selection, nullptr, false, {}, ring.data());
  for (int64_t i : ElementsOf(selection)) expected.push_back(a[i] + b[i]);
  EXPECT_THAT(ring, ElementsAreArray(expected));
  CutGradient(selection, nullptr, true, {}, ring.data());
  EXPECT_THAT(ring, Each(0));
}

TEST(CutTest, WithAResidualNothingIsLostWhateverIsSelected) {
  const std::vector<float> zero(kElements);
  std::vector<float> residual = zero, sent = zero, total = zero, ring(kKept);
  for (int64_t step = 0; step < 5; ++step) {
    const Selection selection = Selection::Make(kElements, kKept, step);
    for (uint64_t micro = 0; micro < 3; ++micro) {
      const std::vector<float> gradient = Values(10 * step + micro);
      CutGradient(selection, gradient.data(), micro == 0, {.fp32 = residual.data()}, ring.data());
      for (int64_t i = 0; i < kElements; ++i) total[i] += gradient[i];
    }
    std::vector<float> spread(kElements);
    EXPECT_EQ(KeptReader(&selection, ring.data()).Spread(kElements, spread.data()), kKept);
    for (int64_t i = 0; i < kElements; ++i) sent[i] += spread[i];
    for (int64_t i : ElementsOf(selection)) ASSERT_EQ(residual[i], 0);
  }
  for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(sent[i] + residual[i], total[i]);
}

TEST(CutTest, ABf16ResidualIsRightInTheMean) {
  const Selection selection = Selection::Make(kElements, 1, 0);
  const std::vector<float> gradient(kElements, 1.001f);  // between 1 and the next bf16, 1.0078125
  std::vector<uint16_t> residual(kElements, 0);
  float ring = 0;
  CutGradient(selection, gradient.data(), true, {.bf16 = residual.data(), .seed = 5}, &ring);
  EXPECT_EQ(ring, 1.001f);
  double sum = 0;
  for (const uint16_t bits : residual) {
    const float value = FromBf16(bits);
    ASSERT_TRUE(value == 0 || value == 1 || value == 1.0078125f) << value;
    sum += value;
  }
  // 0.128 of 4,172 are rounded up: the mean is off by 4e-5 at one standard deviation.
  EXPECT_NEAR(sum / (kElements - 1), 1.001, 2e-4);
}

TEST(CutTest, ReadingInPartsSpreadsWhatGatheringTook) {
  const Selection selection = Selection::Make(kElements, kKept, 11);
  const std::vector<float> values = Values(4);
  std::vector<float> kept(kKept), back = Values(5), spread(kElements, NAN);
  GatherKept(selection, values.data(), kept.data());
  KeptReader reader(&selection, kept.data());
  int64_t found = 0;
  for (int64_t begin = 0; begin < kElements; begin += 640) {
    found += reader.Spread(std::min<int64_t>(640, kElements - begin), spread.data() + begin);
  }
  EXPECT_EQ(found, kKept);
  ScatterKept(selection, kept.data(), back.data());
  const std::set<int64_t> selected = ElementsOf(selection);
  const std::vector<float> others = Values(5);
  for (int64_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(spread[i], selected.contains(i) ? values[i] : 0);
    ASSERT_EQ(back[i], selected.contains(i) ? values[i] : others[i]);
  }
}

TEST(CutTest, AWholeTensorIsCopied) {
  const Selection selection = Selection::Make(kElements, kElements, 7);
  const std::vector<float> values = Values(6);
  std::vector<float> ring(kElements);
  CutGradient(selection, values.data(), true, {}, ring.data());
  EXPECT_EQ(ring, values);
}

}  // namespace
}  // namespace tessera::worker

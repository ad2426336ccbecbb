#include "worker/nn/chunked_cross_entropy.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

namespace tessera::worker {
namespace {

constexpr int64_t kIgnored = -100;

struct Case {
  at::Tensor hidden, weight, targets;
};

Case MakeCase(int64_t tokens, int64_t vocabulary, int64_t width) {
  at::manual_seed(3);
  Case c{at::randn({tokens, width}).requires_grad_(true), at::randn({vocabulary, width}).requires_grad_(true),
         at::randint(vocabulary, {tokens}, at::kLong)};
  return c;
}

at::Tensor Reference(const Case& c) {
  return at::cross_entropy_loss(at::matmul(c.hidden, c.weight.t()), c.targets, {}, at::Reduction::Sum,
                                kIgnored);
}

TEST(ChunkedCrossEntropy, EqualsCrossEntropyWithIgnoredTargetsAndAnUnevenLastChunk) {
  for (int64_t vocabulary : {7, 260, 1000}) {
    Case c = MakeCase(301, vocabulary, 24);
    for (int64_t i = 0; i < 301; i += 5) c.targets[i] = kIgnored;
    const at::Tensor want = Reference(c);
    const auto want_gradients = torch::autograd::grad({want * 0.5}, {c.hidden, c.weight});
    const at::Tensor got = ChunkedCrossEntropy(c.hidden, c.weight, c.targets, kIgnored, /*chunk_bytes=*/1);
    const auto got_gradients = torch::autograd::grad({got * 0.5}, {c.hidden, c.weight});
    EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-5 * want.item<double>());
    // fp32 sums over the vocabulary and 301 tokens in another order.
    EXPECT_TRUE(at::allclose(got_gradients[0], want_gradients[0], 1e-4, 2e-5));
    EXPECT_TRUE(at::allclose(got_gradients[1], want_gradients[1], 1e-4, 2e-5));
  }
}

TEST(ChunkedCrossEntropy, LossIsTheSameBitsWithAndWithoutGradients) {
  Case c = MakeCase(200, 260, 16);
  const at::Tensor with = ChunkedCrossEntropy(c.hidden, c.weight, c.targets, kIgnored);
  at::NoGradGuard no_grad;
  const at::Tensor without = ChunkedCrossEntropy(c.hidden, c.weight, c.targets, kIgnored);
  EXPECT_EQ(with.item<float>(), without.item<float>());
  EXPECT_FALSE(without.requires_grad());
}

TEST(ChunkedCrossEntropy, RepeatsBitForBit) {
  Case c = MakeCase(500, 260, 64);
  const auto run = [&] {
    const at::Tensor loss = ChunkedCrossEntropy(c.hidden, c.weight, c.targets, kIgnored, 64 * 260 * 4);
    auto gradients = torch::autograd::grad({loss}, {c.hidden, c.weight});
    gradients.push_back(loss.detach());
    return gradients;
  };
  const auto first = run(), second = run();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i]));
}

TEST(ChunkedCrossEntropy, AllTargetsIgnoredGivesZeroLossAndZeroGradients) {
  Case c = MakeCase(70, 33, 8);
  c.targets.fill_(kIgnored);
  const at::Tensor loss = ChunkedCrossEntropy(c.hidden, c.weight, c.targets, kIgnored);
  const auto gradients = torch::autograd::grad({loss}, {c.hidden, c.weight});
  EXPECT_EQ(loss.item<float>(), 0);
  EXPECT_EQ(gradients[0].abs().max().item<float>(), 0);
  EXPECT_EQ(gradients[1].abs().max().item<float>(), 0);
}

TEST(ChunkedCrossEntropy, RefusesATargetOutsideTheVocabulary) {
  Case c = MakeCase(4, 10, 8);
  c.targets[2] = 10;
  EXPECT_THROW(ChunkedCrossEntropy(c.hidden, c.weight, c.targets, kIgnored), c10::Error);
}

}  // namespace
}  // namespace tessera::worker

// What the layers keep and never make, counted in bytes.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <vector>

#include "worker/nn/autocast.h"
#include "worker/nn/causal_attention.h"
#include "worker/nn/chunked_cross_entropy.h"
#include "worker/nn/linear.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

class NnMemory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { InstallMemoryCounter(); }
};

TEST_F(NnMemory, CausalAttentionNeverMakesTheScoreMatrix) {
  constexpr int64_t kBatch = 2, kLength = 1024, kHeads = 4, kSize = 32;
  for (int64_t groups : {4, 2}) {
    const at::Tensor q = at::randn({kBatch, kLength, kHeads, kSize}).requires_grad_(true);
    const at::Tensor k = at::randn({kBatch, kLength, groups, kSize}).requires_grad_(true);
    const at::Tensor v = at::randn({kBatch, kLength, groups, kSize}).requires_grad_(true);
    ResetPeakTensorBytes();
    const int64_t before = LiveTensorBytes();
    const at::Tensor out = CausalAttention(q, k, v);
    EXPECT_TRUE(out.is_contiguous());
    const int64_t kept = LiveTensorBytes() - before;
    const int64_t output = out.nbytes(), sums = kBatch * kHeads * kLength * 4;
    const int64_t repeated = groups == kHeads ? 0 : 2 * output;
    RecordProperty("kept", std::to_string(kept));
    EXPECT_LE(kept, output + sums + repeated);
    out.sum().backward();
    EXPECT_LT(PeakTensorBytes() - before, kBatch * kHeads * kLength * kLength * 4 / 2);
  }
}

TEST_F(NnMemory, CrossEntropyHoldsOneChunkOfLogits) {
  constexpr int64_t kTokens = 1024, kVocabulary = 2000, kHidden = 32, kChunk = 64 * kVocabulary * 4;
  const at::Tensor hidden = at::randn({kTokens, kHidden}).requires_grad_(true);
  const at::Tensor weight = at::randn({kVocabulary, kHidden}).requires_grad_(true);
  const at::Tensor targets = at::randint(kVocabulary, {kTokens}, at::kLong);
  ResetPeakTensorBytes();
  const int64_t before = LiveTensorBytes();
  at::Tensor loss = ChunkedCrossEntropy(hidden, weight, targets, -100, kChunk);
  const int64_t gradients = static_cast<int64_t>(hidden.nbytes() + weight.nbytes());
  EXPECT_LE(PeakTensorBytes() - before, kChunk + gradients + 64);
  EXPECT_LE(LiveTensorBytes() - before, gradients + 64);
  loss.backward();
  EXPECT_LE(PeakTensorBytes() - before, kChunk + gradients + 64);  // no copy of either
  {
    at::NoGradGuard no_grad;
    loss.reset();
    hidden.mutable_grad().reset();
    weight.mutable_grad().reset();
    ResetPeakTensorBytes();
    const int64_t start = LiveTensorBytes();
    ChunkedCrossEntropy(hidden, weight, targets, -100, kChunk);
    EXPECT_LE(PeakTensorBytes() - start, kChunk + 64);
  }
}

// torch's own keeps the weight's cast, here 2 MiB, and for each product one of the input.
TEST_F(NnMemory, ProductsInBf16KeepTheirInputOnceAndNoCopyOfAWeight) {
  constexpr int64_t kRows = 64, kSize = 1024;
  const at::Tensor x = at::randn({kRows, kSize}).requires_grad_(true);
  const at::Tensor a = at::randn({kSize, kSize}).requires_grad_(true),
                   b = at::randn({kSize, kSize}).requires_grad_(true);
  const at::Tensor bias = at::randn({kSize}).requires_grad_(true);
  const int64_t before = LiveTensorBytes();
  std::vector<at::Tensor> out;
  {
    const Autocast autocast(true);
    const at::Tensor input = ForProducts(x);
    out = {Linear(input, a), Linear(input, b, bias)};
  }
  EXPECT_EQ(LiveTensorBytes() - before, 3 * kRows * kSize * 2);  // the input and what was asked for
  (out[0].to(at::kFloat) * out[1].to(at::kFloat)).sum().backward();
  const at::Tensor ours[] = {x.grad().clone(), a.grad().clone(), b.grad().clone(), bias.grad().clone()};
  for (const at::Tensor* t : {&x, &a, &b, &bias}) t->mutable_grad().reset();
  {
    const Autocast autocast(true);
    out = {at::linear(x, a), at::linear(x, b, bias)};
  }
  (out[0].to(at::kFloat) * out[1].to(at::kFloat)).sum().backward();
  const at::Tensor theirs[] = {x.grad(), a.grad(), b.grad(), bias.grad()};
  for (int i = 1; i < 4; ++i) EXPECT_TRUE(at::equal(ours[i], theirs[i])) << i;
  // The two products' gradients of their input are added in bf16 here, in fp32 there.
  EXPECT_LT(((ours[0] - theirs[0]).norm() / theirs[0].norm()).item<double>(), 4e-3);
}

}  // namespace
}  // namespace tessera::worker

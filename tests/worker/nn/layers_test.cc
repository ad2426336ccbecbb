// Each fused layer against the same arithmetic written with LibTorch's operators.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <cmath>

#include "worker/nn/causal_attention.h"
#include "worker/nn/rms_norm.h"
#include "worker/nn/rotary.h"
#include "worker/nn/swiglu.h"

namespace tessera::worker {
namespace {

// fp32 sums of a few hundred terms in another order.
constexpr double kTolerance = 2e-5;

at::Tensor Leaf(at::IntArrayRef dims) { return at::randn(dims).requires_grad_(true); }

void ExpectClose(const at::Tensor& a, const at::Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_TRUE(at::allclose(a, b, kTolerance, kTolerance)) << (a - b).abs().max().item<float>();
}

// Runs both on the same leaves and compares value and gradients.
template <typename Ours, typename Reference>
void ExpectSameGradients(const std::vector<at::Tensor>& leaves, const Ours& ours,
                         const Reference& reference) {
  const at::Tensor a = ours(), b = reference();
  ExpectClose(a, b);
  const at::Tensor seed = at::randn(b.sizes());
  const auto ga = torch::autograd::grad({a}, leaves, {seed});
  const auto gb = torch::autograd::grad({b}, leaves, {seed});
  for (size_t i = 0; i < leaves.size(); ++i) ExpectClose(ga[i], gb[i]);
}

class Layers : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(7); }
};

TEST_F(Layers, RmsNormEqualsItsDefinitionAtAnyWidth) {
  for (int64_t width : {16, 37, 256}) {
    const at::Tensor x = Leaf({3, 11, width}), w = Leaf({width});
    ExpectSameGradients(
        {x, w}, [&] { return RmsNorm(x, w, 1e-5); },
        [&] { return x * at::rsqrt(x.pow(2).mean(-1, true) + 1e-5) * w; });
  }
}

TEST_F(Layers, RotaryEqualsRotateHalf) {
  const at::Tensor x = Leaf({2, 9, 3, 16});
  const RotaryTable table = MakeRotaryTable(12, 16, 10000);
  const auto reference = [&] {
    const at::Tensor c = at::cat({table.cosine, table.cosine}, 1).narrow(0, 0, 9).view({1, 9, 1, 16});
    const at::Tensor s = at::cat({table.sine, table.sine}, 1).narrow(0, 0, 9).view({1, 9, 1, 16});
    const at::Tensor half = at::cat({-x.narrow(3, 8, 8), x.narrow(3, 0, 8)}, 3);
    return x * c + half * s;
  };
  ExpectSameGradients(
      {x}, [&] { return ApplyRotary(x, table); }, reference);
}

TEST_F(Layers, SwiGluDownEqualsItsDefinition) {
  for (double scale : {1.0, 0.625}) {
    const at::Tensor r = Leaf({10, 12}), g = Leaf({10, 33}), u = Leaf({10, 33}), w = Leaf({12, 33});
    ExpectSameGradients(
        {r, g, u, w}, [&] { return SwiGluDown(r, g, u, w, scale); },
        [&] { return r + scale * at::matmul(at::silu(g) * u, w.t()); });
  }
}

TEST_F(Layers, SiluIsRightFarFromZero) {
  const at::Tensor g = at::tensor({-120.0f, -60.0f, -1e-6f, 0.0f, 1e-6f, 60.0f, 120.0f}).view({1, 7});
  const at::Tensor out = SwiGluDown(at::zeros({1, 7}), g, at::ones({1, 7}), at::eye(7), 1);
  ExpectClose(out, at::silu(g));
}

TEST_F(Layers, GroupedAttentionEqualsRepeatedHeads) {
  for (int64_t groups : {4, 2, 1}) {
    const at::Tensor q = Leaf({2, 37, 4, 8}), k = Leaf({2, 37, groups, 8}), v = Leaf({2, 37, groups, 8});
    const auto reference = [&] {
      const at::Tensor kk = k.repeat_interleave(4 / groups, 2).transpose(1, 2);
      const at::Tensor vv = v.repeat_interleave(4 / groups, 2).transpose(1, 2);
      at::Tensor scores = at::matmul(q.transpose(1, 2), kk.transpose(2, 3)) / std::sqrt(8.0);
      scores = scores.masked_fill(at::ones({37, 37}, at::kBool).triu(1), -1e30);
      return at::matmul(scores.softmax(-1), vv).transpose(1, 2);
    };
    ExpectSameGradients(
        {q, k, v}, [&] { return CausalAttention(q, k, v); }, reference);
  }
}

}  // namespace
}  // namespace tessera::worker

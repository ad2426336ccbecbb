// What layers do on a device, run on the host's tensors, against the host's own loops.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include "worker/nn/chunked_cross_entropy.h"
#include "worker/nn/host_loops.h"
#include "worker/nn/rms_norm.h"
#include "worker/nn/rotary.h"
#include "worker/nn/swiglu.h"

namespace tessera::worker {
namespace {

// Value and gradients of `layer` both ways; fp32 sums of some hundred terms in another order.
template <typename Layer>
void ExpectSameEitherWay(const std::vector<at::Tensor>& leaves, const Layer& layer) {
  const at::Tensor host = layer();
  const at::Tensor seed = at::randn(host.sizes());
  const auto host_gradients = torch::autograd::grad({host}, leaves, {seed});
  const WithoutHostLoops device;
  const at::Tensor other = layer();
  EXPECT_TRUE(at::allclose(host, other, 2e-5, 2e-5));
  const auto gradients = torch::autograd::grad({other}, leaves, {seed});
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_EQ(host_gradients[i].sizes(), gradients[i].sizes());
    EXPECT_TRUE(at::allclose(host_gradients[i], gradients[i], 1e-4, 2e-5)) << i;
  }
}

at::Tensor Leaf(at::IntArrayRef dims) { return at::randn(dims).requires_grad_(true); }

TEST(DeviceLayers, RmsNormIsTheHosts) {
  at::manual_seed(1);
  const at::Tensor x = Leaf({3, 11, 37}), w = Leaf({37});
  ExpectSameEitherWay({x, w}, [&] { return RmsNorm(x, w, 1e-5); });
}

TEST(DeviceLayers, RotaryIsTheHosts) {
  at::manual_seed(2);
  const at::Tensor x = Leaf({2, 9, 3, 8});
  const RotaryTable table = MakeRotaryTable(12, 8, 10000);
  ExpectSameEitherWay({x}, [&] { return ApplyRotary(x, table); });
}

TEST(DeviceLayers, SwiGluIsTheHosts) {
  at::manual_seed(3);
  const at::Tensor residual = Leaf({13, 6}), gate = Leaf({13, 20}), up = Leaf({13, 20}), down = Leaf({6, 20});
  ExpectSameEitherWay({residual, gate, up, down}, [&] { return SwiGluDown(residual, gate, up, down, 0.7); });
}

// bf16 between the products, fp32 within: a value that lies between two of bf16's may be rounded to either.
TEST(DeviceLayers, SwiGluInBf16IsTheHostsToARounding) {
  at::manual_seed(5);
  const at::Tensor residual = Leaf({13, 6}), down = Leaf({6, 20});
  const at::Tensor gate = at::randn({13, 20}).to(at::kBFloat16).requires_grad_(true);
  const at::Tensor up = at::randn({13, 20}).to(at::kBFloat16).requires_grad_(true);
  const std::vector<at::Tensor> leaves = {residual, gate, up, down};
  const auto layer = [&] { return SwiGluDown(residual, gate, up, down, 0.7); };
  const at::Tensor host = layer(), seed = at::randn({13, 6});
  const auto host_gradients = torch::autograd::grad({host}, leaves, {seed});
  const WithoutHostLoops device;
  const at::Tensor other = layer();
  EXPECT_TRUE(at::allclose(host, other, 1.0 / 128, 0.03));
  const auto gradients = torch::autograd::grad({other}, leaves, {seed});
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_EQ(host_gradients[i].scalar_type(), gradients[i].scalar_type()) << i;
    EXPECT_TRUE(at::allclose(host_gradients[i].to(at::kFloat), gradients[i].to(at::kFloat), 1.0 / 64, 0.03))
        << i;
  }
}

TEST(DeviceLayers, TheChunkedLossIsTheHosts) {
  at::manual_seed(4);
  const at::Tensor hidden = Leaf({301, 24}), weight = Leaf({50, 24}), bias = Leaf({50});
  const at::Tensor targets = at::randint(50, {301}, at::kLong);
  for (int64_t i = 0; i < 301; i += 5) targets[i] = -100;
  ExpectSameEitherWay({hidden, weight, bias}, [&] {
    return ChunkedCrossEntropy(hidden, weight, targets, -100, /*chunk_bytes=*/1, bias);
  });
  const at::NoGradGuard no_grad;
  const double host = ChunkedCrossEntropy(hidden, weight, targets, -100).item<double>();
  const WithoutHostLoops device;
  EXPECT_NEAR(ChunkedCrossEntropy(hidden, weight, targets, -100).item<double>(), host, 1e-5 * host);
}

}  // namespace
}  // namespace tessera::worker

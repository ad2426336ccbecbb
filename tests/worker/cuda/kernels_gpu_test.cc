// Every kernel of ours on a device, against the host's code.
#include <ATen/ATen.h>

#include <cmath>

#include "scheduler/plan/counter_random.h"
#include "tests/worker/cuda/gpu_fixture.h"
#include "worker/dropping/float_view.h"
#include "worker/dropping/kept_operations.h"
#include "worker/dropping/sketch.h"

namespace tessera::worker {
namespace {

const std::vector<int64_t> kSizes = {1, 65, 16384, 16385, 1 << 20, 3'000'017};

at::Tensor Values(uint64_t seed, int64_t elements) {
  at::manual_seed(seed);
  return at::randn({elements});
}

at::Tensor OnGpu(const at::Tensor& tensor) { return tensor.to(at::kCUDA); }

std::vector<Selection> Selections() {
  std::vector<Selection> all;
  for (const int64_t n : kSizes) {
    for (const double share : {0.01, 0.4, 1.0}) {
      const int64_t kept = std::max<int64_t>(1, std::llround(share * static_cast<double>(n)));
      all.push_back(Selection::Make(n, kept, 5));
      if (kept == n) continue;
      std::vector<uint64_t> picks((n + 63) / 64, 0);
      for (int64_t k = 0; k < kept / 2; ++k) {
        const auto i = static_cast<int64_t>(plan::CounterRandom(3, k) % n);
        picks[i / 64] |= uint64_t{1} << (i % 64);
      }
      all.push_back(Selection::Make(n, kept, 5, picks));
    }
  }
  return all;
}

using KernelsGpuTest = GpuTest;

TEST_F(KernelsGpuTest, CuttingIsTheHostsToTheBit) {
  TESSERA_NEEDS_GPUS(1);
  for (const Selection& selection : Selections()) {
    const int64_t n = selection.elements();
    const auto host = HostKeptDevice().Prepare(selection), device = gpu_->kept().Prepare(selection);
    for (const at::ScalarType keep : {at::kFloat, at::kBFloat16}) {
      at::Tensor residual = Values(1, n).to(keep), ring = at::zeros({selection.kept()});
      at::Tensor residual_gpu = OnGpu(residual), ring_gpu = OnGpu(ring);
      const auto view = [&](const at::Tensor& of, uint64_t seed) {
        ResidualView view;
        if (keep == at::kFloat) view.fp32 = of.data_ptr<float>();
        if (keep == at::kBFloat16) view = {.bf16 = static_cast<uint16_t*>(of.data_ptr()), .seed = seed};
        return view;
      };
      for (int micro = 0; micro < 2; ++micro) {
        const at::Tensor gradient = Values(2 + micro, n), gradient_gpu = OnGpu(gradient);
        host->Cut(gradient.const_data_ptr<float>(), micro == 0, view(residual, micro),
                  ring.data_ptr<float>());
        device->Cut(gradient_gpu.const_data_ptr<float>(), micro == 0, view(residual_gpu, micro),
                    ring_gpu.data_ptr<float>());
      }
      host->Return(selection.kept() / 3, selection.kept(), ring.data_ptr<float>(), view(residual, 9));
      device->Return(selection.kept() / 3, selection.kept(), ring_gpu.data_ptr<float>(),
                     view(residual_gpu, 9));
      ASSERT_TRUE(at::equal(ring, ring_gpu.cpu())) << n;
      ASSERT_TRUE(at::equal(residual, residual_gpu.cpu())) << n;
    }
  }
}

TEST_F(KernelsGpuTest, SpreadingGatheringAndScatteringAreTheHosts) {
  TESSERA_NEEDS_GPUS(1);
  for (const Selection& selection : Selections()) {
    const int64_t n = selection.elements();
    const auto host = HostKeptDevice().Prepare(selection), device = gpu_->kept().Prepare(selection);
    const at::Tensor values = Values(3, n), values_gpu = OnGpu(values);
    at::Tensor ring = at::empty({selection.kept()}), ring_gpu = OnGpu(ring);
    host->Gather(values.const_data_ptr<float>(), ring.data_ptr<float>());
    device->Gather(values_gpu.const_data_ptr<float>(), ring_gpu.data_ptr<float>());
    ASSERT_TRUE(at::equal(ring, ring_gpu.cpu()));
    at::Tensor target = Values(4, n), target_gpu = OnGpu(target);
    host->Scatter(ring.const_data_ptr<float>(), target.data_ptr<float>());
    device->Scatter(ring_gpu.const_data_ptr<float>(), target_gpu.data_ptr<float>());
    ASSERT_TRUE(at::equal(target, target_gpu.cpu()));
    constexpr int64_t kPart = 1 << 18;
    for (int64_t begin = 0; begin < n; begin += kPart) {
      const int64_t count = std::min(kPart, n - begin);
      host->Spread(begin, count, ring.const_data_ptr<float>(), target.data_ptr<float>() + begin);
      device->Spread(begin, count, ring_gpu.const_data_ptr<float>(), target_gpu.data_ptr<float>() + begin);
    }
    ASSERT_TRUE(at::equal(target, target_gpu.cpu()));
  }
}

TEST_F(KernelsGpuTest, PicksAndSketchesAreTheHosts) {
  TESSERA_NEEDS_GPUS(1);
  for (const int64_t n : kSizes) {
    const at::Tensor m = Values(5, n), v = (Values(6, n).abs() * 16).floor() / 16;  // ties
    const at::Tensor m_gpu = OnGpu(m), v_gpu = OnGpu(v);
    for (const DroppingRule* rule : DroppingRules()) {
      RuleInput here;
      here.elements = n;
      here.picks = std::max<int64_t>(1, n / 5);
      RuleInput there = here;
      here.first_moment = here.residual.fp32 = m.const_data_ptr<float>();
      here.second_moment = v.const_data_ptr<float>();
      there.first_moment = there.residual.fp32 = m_gpu.const_data_ptr<float>();
      there.second_moment = v_gpu.const_data_ptr<float>();
      if (rule->needs().agreement == RuleAgreement::kSketch) {
        EXPECT_EQ(HostKeptDevice().Sketch(here), gpu_->kept().Sketch(there));
        continue;
      }
      if (!rule->needs().importance.has_value()) continue;
      std::vector<uint64_t> expected((n + 63) / 64), found((n + 63) / 64);
      rule->Pick(here, absl::MakeSpan(expected));
      gpu_->kept().Pick(*rule, there, absl::MakeSpan(found));
      EXPECT_EQ(expected, found) << rule->name() << " " << n;
    }
  }
}

TEST_F(KernelsGpuTest, TheStepInOnePassIsLibTorchsOnSpreadGradients) {
  TESSERA_NEEDS_GPUS(1);
  for (const Selection& selection : Selections()) {
    const int64_t n = selection.elements();
    const at::Tensor ring = OnGpu(Values(7, selection.kept()));
    at::Tensor p = OnGpu(Values(8, n)), m = OnGpu(Values(9, n)), v = OnGpu(Values(10, n).square());
    at::Tensor p2 = p.clone(), m2 = m.clone(), v2 = v.clone(), spread = at::empty_like(p);
    const auto device = gpu_->kept().Prepare(selection);
    kernels::UpdateArguments update;
    update.step = {.learning_rate = 1e-3f,
                   .beta1 = 0.9f,
                   .beta2 = 0.95f,
                   .epsilon = 1e-8f,
                   .weight_decay = 0.1f,
                   .divisor = 7,
                   .correction1 = static_cast<float>(1 - std::pow(0.9, 4)),
                   .root_correction2 = static_cast<float>(std::sqrt(1 - std::pow(0.95, 4)))};
    update.ring = ring.const_data_ptr<float>();
    update.parameters = p.data_ptr<float>();
    update.first = m.data_ptr<float>();
    update.second = v.data_ptr<float>();
    ASSERT_TRUE(device->Update(update));
    device->Spread(0, n, ring.const_data_ptr<float>(), spread.data_ptr<float>());
    const at::Tensor step = at::full({}, 4.0, p.options()), scale = at::full({}, 7.0, p.options());
    at::_fused_adamw_({p2}, {spread}, {m2}, {v2}, {}, {step}, 1e-3, 0.9, 0.95, 0.1, 1e-8, false, false, scale,
                      std::nullopt);
    EXPECT_TRUE(at::allclose(p, p2, 1e-5, 1e-6));  // a few roundings in another order
    EXPECT_TRUE(at::allclose(m, m2, 1e-5, 1e-6));
    EXPECT_TRUE(at::allclose(v, v2, 1e-5, 1e-6));
  }
}

TEST_F(KernelsGpuTest, TheSoftmaxLossIsLibTorchs) {
  TESSERA_NEEDS_GPUS(1);
  for (const int64_t classes : {2, 257, 50257}) {
    at::manual_seed(11);
    const at::Tensor logits = OnGpu(at::randn({97, classes}) * 20);
    at::Tensor targets = at::randint(classes, {97}, at::kLong);
    for (int64_t i = 0; i < 97; i += 5) targets[i] = -100;
    targets = OnGpu(targets);
    const at::Tensor ours = logits.clone(), losses = at::empty({97}, logits.options());
    gpu_->softmax_loss()(ours, targets, -100, /*gradient=*/true, losses);
    SetSoftmaxLossKernel(nullptr);
    const at::Tensor other = logits.clone();
    const at::Tensor reference = SoftmaxLossInPlace(other, targets, -100, /*gradient=*/true);
    EXPECT_TRUE(at::allclose(losses, reference, 1e-4, 1e-4)) << classes;
    EXPECT_TRUE(at::allclose(ours, other, 1e-4, 1e-6)) << classes;
  }
}

}  // namespace
}  // namespace tessera::worker

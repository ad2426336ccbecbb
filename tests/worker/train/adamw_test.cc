#include "worker/train/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera::worker {
namespace {

// AdamW by the paper's formulas in double precision.
struct Reference {
  std::vector<double> weight, m, v;
  void Step(const std::vector<double>& g, const AdamWOptions& o, int64_t step, double lr, size_t decayed) {
    for (size_t i = 0; i < weight.size(); ++i) {
      if (i < decayed) weight[i] *= 1 - lr * o.weight_decay;
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g[i];
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(o.beta1, step)), v_hat = v[i] / (1 - std::pow(o.beta2, step));
      weight[i] -= lr * m_hat / (std::sqrt(v_hat) + o.epsilon);
    }
  }
};

class AdamWTest : public testing::TestWithParam<double> {};  // divisor

TEST_P(AdamWTest, FollowsTheFormulasOnDecayedAndOtherElements) {
  constexpr int64_t kElements = 37, kDecayed = 20;
  const double divisor = GetParam();
  UnitState unit;
  unit.layout.elements = kElements;
  unit.layout.decayed = kDecayed;
  unit.parameters = at::linspace(-1, 1, kElements);
  unit.gradients = at::zeros({kElements + 1});
  unit.exp_avg = at::zeros({kElements});
  unit.exp_avg_sq = at::zeros({kElements});
  Reference reference;
  reference.m.assign(kElements, 0);
  reference.v.assign(kElements, 0);
  for (int i = 0; i < kElements; ++i) reference.weight.push_back(unit.parameters[i].item<float>());

  const AdamWOptions options;
  for (int64_t step = 1; step <= 20; ++step) {
    std::vector<double> gradient;
    for (int i = 0; i < kElements; ++i) {
      gradient.push_back(std::sin(0.7 * i + 1.3 * step));
      unit.gradients[i] = gradient.back() * divisor;
    }
    AdamWStep(unit, options, step, 0.01, divisor);
    reference.Step(gradient, options, step, 0.01, kDecayed);
  }
  for (int i = 0; i < kElements; ++i) {
    // 20 updates of 0.01 in fp32: each rounds at about 6e-8.
    EXPECT_NEAR(unit.parameters[i].item<float>(), reference.weight[i], 5e-6);
  }
}
INSTANTIATE_TEST_SUITE_P(Divisors, AdamWTest, testing::Values(1.0, 512.0, 777.0));

}  // namespace
}  // namespace tessera::worker

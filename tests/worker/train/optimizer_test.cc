#include "worker/train/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/status.h"

namespace tessera::worker {
namespace {

// The papers' formulas in double precision.
struct Reference {
  std::vector<double> weight, m, v;
  OptimizerOptions options;

  void Step(const std::vector<double>& g, int64_t step, double lr, size_t decayed) {
    for (size_t i = 0; i < weight.size(); ++i) {
      const double decay = i < decayed ? options.weight_decay : 0;
      if (options.name == "sgd") {
        m[i] = options.momentum * m[i] + g[i] + decay * weight[i];
        weight[i] -= lr * m[i];
        continue;
      }
      const double b1 = options.beta1, b2 = options.beta2;
      weight[i] *= 1 - lr * decay;
      m[i] = b1 * m[i] + (1 - b1) * g[i];
      v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
      const double m_hat = m[i] / (1 - std::pow(b1, step)), v_hat = v[i] / (1 - std::pow(b2, step));
      weight[i] -= lr * m_hat / (std::sqrt(v_hat) + options.epsilon);
    }
  }
};

struct Case {
  const char* name;
  double divisor;
  double momentum;
};

class OptimizerTest : public testing::TestWithParam<Case> {};

TEST_P(OptimizerTest, FollowsTheFormulasOnDecayedAndOtherElements) {
  constexpr int64_t kElements = 37, kDecayed = 20;
  const double divisor = GetParam().divisor;
  Reference reference;
  reference.options.name = GetParam().name;
  reference.options.momentum = GetParam().momentum;
  reference.m.assign(kElements, 0);
  reference.v.assign(kElements, 0);
  const auto optimizer = MakeOptimizer(reference.options);
  ASSERT_OK(optimizer);

  GroupState state;
  state.parameters = at::linspace(-1, 1, kElements);
  state.gradients = at::zeros({kElements});
  for (size_t i = 0; i < (*optimizer)->moments().size(); ++i) state.moments.push_back(at::zeros({kElements}));
  for (const auto& [begin, end, decay] :
       {std::tuple{int64_t{0}, kDecayed, true}, {kDecayed, kElements, false}}) {
    StateSpan span{state.parameters.slice(0, begin, end), state.gradients.slice(0, begin, end), {}, decay};
    for (const at::Tensor& moment : state.moments) span.moments.push_back(moment.slice(0, begin, end));
    state.spans.push_back(std::move(span));
  }
  for (int i = 0; i < kElements; ++i) reference.weight.push_back(state.parameters[i].item<float>());

  for (int64_t step = 1; step <= 20; ++step) {
    std::vector<double> gradient;
    for (int i = 0; i < kElements; ++i) {
      gradient.push_back(std::sin(0.7 * i + 1.3 * step));
      state.gradients[i] = gradient.back() * divisor;
    }
    (*optimizer)->Step(state, step, 0.01, divisor);
    reference.Step(gradient, step, 0.01, kDecayed);
  }
  for (int i = 0; i < kElements; ++i) {
    // 20 updates of 0.01 in fp32: each rounds at about 6e-8.
    EXPECT_NEAR(state.parameters[i].item<float>(), reference.weight[i], 5e-6);
  }
}
INSTANTIATE_TEST_SUITE_P(Divisors, OptimizerTest,
                         testing::Values(Case{"adamw", 1, 0.9}, Case{"adamw", 512, 0.9},
                                         Case{"adamw", 777, 0.9}, Case{"sgd", 1, 0.9}, Case{"sgd", 777, 0.9},
                                         Case{"sgd", 777, 0}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.name, "_divisor_", info.param.divisor,
                                               info.param.momentum == 0 ? "_without_momentum" : "");
                         });

TEST(OptimizerTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  EXPECT_EQ(MakeOptimizer({.name = "lion"}).status().message(),
            "spec.optimizer.name: 'lion' is unknown; use adamw or sgd");
}

}  // namespace
}  // namespace tessera::worker

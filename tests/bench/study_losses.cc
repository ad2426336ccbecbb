#include "tests/bench/study_losses.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace tessera::worker {
namespace {

constexpr double kTargets = 65536;  // of the validation data that are looked at
constexpr double kRareShare = 0.01;

class EveryBlock final : public BlockRunner {
 public:
  at::Tensor Run(int, const at::Tensor& x, const BlockBody& body) override { return body(x, 1); }
};

Batch Read(const Dataset& data, int64_t sample) {
  const std::vector<Sample> one{{sample}};
  auto batch = data.Read(one);
  TESSERA_CHECK(batch.ok());
  return *std::move(batch);
}

}  // namespace

RareLosses MeasureRareLosses(const Model& model, const Weights& weights, const Dataset& train,
                             const Dataset& validation) {
  const at::NoGradGuard no_grad;
  std::vector<double> counts(static_cast<size_t>(model.input().vocab_size), 0.0);
  const auto each_target = [](const Batch& batch, const auto& visit) {
    const at::Tensor targets = batch.targets.contiguous();
    for (int64_t i = 0; i < targets.numel(); ++i) {
      const int64_t token = targets.const_data_ptr<int64_t>()[i];
      if (token != kIgnoredTarget) visit(i, static_cast<size_t>(token));
    }
  };
  double all = 0;
  for (int64_t s = 0; s < train.samples() && all < 10 * kTargets; ++s) {
    each_target(Read(train, s), [&](int64_t, size_t token) { ++counts[token], ++all; });
  }
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return counts[a] < counts[b]; });
  std::vector<bool> rare(counts.size(), false);
  double sum = 0;
  for (size_t token : order) {
    sum += counts[token];
    if (sum > kRareShare * all) break;
    rare[token] = true;
  }
  RareLosses losses;
  double rare_count = 0, common_count = 0;
  EveryBlock runner;
  for (int64_t s = 0; s < validation.samples() && rare_count + common_count < kTargets; ++s) {
    const Batch batch = Read(validation, s);
    const at::Tensor logits = model.Logits(weights, batch, runner);
    const at::Tensor nats = at::nll_loss(at::log_softmax(logits.reshape({-1, logits.size(-1)}), 1),
                                         batch.targets.reshape({-1}), {}, at::Reduction::None, kIgnoredTarget)
                                .contiguous();
    each_target(batch, [&](int64_t i, size_t token) {
      (rare[token] ? losses.rare : losses.common) += nats.const_data_ptr<float>()[i];
      ++(rare[token] ? rare_count : common_count);
    });
  }
  losses.rare /= std::max(1.0, rare_count);
  losses.common /= std::max(1.0, common_count);
  return losses;
}

}  // namespace tessera::worker

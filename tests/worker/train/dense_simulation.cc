#include "tests/worker/train/dense_simulation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "scheduler/plan/mask_schedule.h"
#include "tests/status.h"
#include "worker/data/sampler.h"
#include "worker/train/learning_rate.h"
#include "worker/train/optimizer.h"

namespace tessera::worker {
namespace {

class BatchRunner final : public BlockRunner {
 public:
  BatchRunner() : BlockRunner({.norm = NormSource::kBatch}) {}
  at::Tensor Run(int, const at::Tensor& x, const BlockBody& body) override { return body(x, 1); }
};

// 1 where `rank` holds the element, 0 elsewhere.
std::vector<at::Tensor> Masks(const plan::ModelShape& shape, const plan::MaskPlan& plan, int rank) {
  std::vector<at::Tensor> masks;
  for (const plan::Parameter& parameter : shape.parameters) masks.push_back(at::zeros(parameter.dims));
  for (const plan::Slice& slice : plan.slices()) {
    if (!plan.Holds(rank, slice.unit)) continue;
    masks[slice.parameter].narrow(slice.dim, slice.begin, slice.length).fill_(1);
  }
  return masks;
}

}  // namespace

std::vector<at::Tensor> SimulateDense(const Model& model, const Dataset& data, const plan::MaskPlan& plan,
                                      const TrainerOptions& options) {
  const plan::ModelShape& shape = model.shape();
  const int ranks = plan.workers();
  const bool backward = options.store.backward_masking;
  std::vector<std::vector<at::Tensor>> masks;
  int64_t period = -1;
  GroupState state;
  Weights weights;
  for (size_t p = 0; p < shape.parameters.size(); ++p) {
    at::Tensor weight = at::empty(shape.parameters[p].dims);
    model.Initialize(static_cast<int>(p), options.seed, weight);
    weights.push_back(weight);
    StateSpan span{weight, at::zeros_like(weight), {}, shape.parameters[p].decay};
    const auto optimizer = MakeOptimizer(options.optimizer);
    for (size_t i = 0; i < (*optimizer)->moments().size(); ++i)
      span.moments.push_back(at::zeros_like(weight));
    state.moments = span.moments;
    state.spans.push_back(span);
  }
  const Sampler sampler(data.samples(), options.seed, Sampler::kEndless);
  const std::vector<int64_t> shares(ranks, options.batch);
  for (int64_t step = 0; step < options.schedule.total_steps; ++step) {
    if (plan::MaskPeriod(options.masks, step) != period) {
      period = plan::MaskPeriod(options.masks, step);
      const plan::MaskPlan now = plan::MasksOfPeriod(shape, plan, options.masks.seed, period);
      masks.clear();
      for (int rank = 0; rank < ranks; ++rank) masks.push_back(Masks(shape, now, rank));
    }
    std::vector<at::Tensor> sums, divisors;
    for (const at::Tensor& weight : weights) {
      sums.push_back(at::zeros_like(weight));
      divisors.push_back(at::zeros_like(weight));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (int micro = 0; micro < options.accumulation; ++micro) {
        const Batch batch = *data.Read(sampler.MicroBatch(step, micro, options.accumulation, rank, shares));
        Weights masked;
        for (size_t p = 0; p < weights.size(); ++p) {
          masked.push_back(
              (backward ? weights[p].clone() : weights[p] * masks[rank][p]).requires_grad_(true));
        }
        BatchRunner runner;
        model.Loss(masked, batch, runner).backward();
        for (size_t p = 0; p < weights.size(); ++p) {
          sums[p] += masked[p].grad() * masks[rank][p];
          divisors[p] += masks[rank][p] * static_cast<double>(batch.target_count);
        }
      }
    }
    double squared = 0;
    for (size_t p = 0; p < weights.size(); ++p) {
      state.spans[p].gradients.copy_(sums[p] / divisors[p]);
      squared += state.spans[p].gradients.square().sum().item<double>();
    }
    const double clip = std::min(1.0, options.clip_norm / (std::sqrt(squared) + 1e-6));
    const auto optimizer = MakeOptimizer(options.optimizer);
    (*optimizer)->Step(state, step + 1, LearningRate(options.schedule, step), 1 / clip);
  }
  return weights;
}

void ExpectLikeDense(const TrainingRig& rig, const std::vector<RankOutcome>& ranks) {
  constexpr double kOrderOfSums = 2e-4;  // as in trainer_test.cc
  const std::vector<at::Tensor> expected = SimulateDense(rig.model, rig.data, rig.Plan(), rig.options);
  std::vector<at::Tensor> kept;
  for (const at::Tensor& weight : expected) kept.push_back(at::zeros_like(weight));
  for (const RankOutcome& rank : ranks) {
    ASSERT_OK(rank.result);
    EXPECT_LT(LargestDifference(rank.weights, expected), kOrderOfSums);
    if (!rig.options.store.sharded) EXPECT_TRUE(SameBits(rank, ranks[0]));
    for (size_t p = 0; p < kept.size(); ++p) kept[p] += rank.weights[p].isnan().logical_not();
  }
  for (const at::Tensor& count : kept) EXPECT_GE(count.min().item<float>(), 1) << "nobody keeps it";
}

}  // namespace tessera::worker

#include "worker/train/evaluator.h"

#include <torch/types.h>

#include <algorithm>

#include "base/status_macros.h"
#include "worker/device/placed_batch.h"

namespace tessera::worker {

namespace {

struct Sums {
  double loss = 0, right = 0, targets = 0;
};

bool IsClassifier(const Model& model) {
  return model.input().task == Task::kImageClass || model.input().task == Task::kTextClass;
}

Sums OfBatch(const Model& model, const Weights& weights, const Batch& batch, BlockRunner& runner) {
  Sums sums{.targets = static_cast<double>(batch.target_count)};
  if (!IsClassifier(model)) {
    sums.loss = model.Loss(weights, batch, runner).item<double>();
    return sums;
  }
  const at::Tensor logits = model.Logits(weights, batch, runner);
  sums.loss =
      at::cross_entropy_loss(logits, batch.targets, {}, at::Reduction::Sum, kIgnoredTarget).item<double>();
  sums.right = logits.argmax(1).eq(batch.targets).sum().item<double>();
  return sums;
}

}  // namespace

absl::StatusOr<AssembledEvaluation> EvaluateAssembled(const UnitStore& store, WeightFetcher* fetcher,
                                                      World* world, const Dataset& data,
                                                      const EvaluationOptions& options) {
  const at::NoGradGuard no_grad;
  const int64_t length = options.targets_per_sample;
  const int64_t whole = data.samples();
  const int64_t samples =
      options.tokens <= 0 ? whole : std::min(whole, (options.tokens + length - 1) / length);
  if (samples <= 0) return absl::InvalidArgumentError("validation data are shorter than one sample");

  const int64_t ranks = world->all().size();
  StreamedRunner runner(store, fetcher, options.residual);
  TESSERA_RETURN_IF_ERROR(runner.Begin());
  Sums sums;
  for (int64_t first = 0; first < samples; first += ranks * options.batch) {
    std::vector<Sample> indices;
    for (int64_t i = 0; i < options.batch; ++i) {
      const int64_t index = first + i * ranks + world->all().rank();
      if (index < samples) indices.push_back({index});
    }
    // A rank without samples left still takes part in the broadcasts of this pass.
    const bool idle = indices.empty();
    if (idle) indices.push_back({0});
    TESSERA_ASSIGN_OR_RETURN(Batch read, data.Read(indices));
    const Batch batch = ToDevice(std::move(read), store.options().device);
    const Sums own = OfBatch(store.model(), runner.weights(), batch, runner);
    TESSERA_RETURN_IF_ERROR(runner.status());
    if (idle) continue;
    sums.loss += own.loss;
    sums.right += own.right;
    sums.targets += own.targets;
  }
  const at::Tensor total = at::tensor({sums.loss, sums.right, sums.targets}, at::kDouble);
  TESSERA_RETURN_IF_ERROR(world->all().AllReduceSum(total)->Wait());
  const double targets = total[2].item<double>(), at_least_one = std::max(1.0, targets);
  AssembledEvaluation evaluation{.loss = total[0].item<double>() / at_least_one,
                                 .tokens = static_cast<int64_t>(targets)};
  if (IsClassifier(store.model())) evaluation.accuracy = total[1].item<double>() / at_least_one;
  return evaluation;
}

}  // namespace tessera::worker

#include "worker/train/evaluator.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/status_macros.h"

namespace tessera::worker {

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
  double sums[2] = {0, 0};  // loss, targets
  for (int64_t first = 0; first < samples; first += ranks * options.batch) {
    std::vector<Sample> indices;
    for (int64_t i = 0; i < options.batch; ++i) {
      const int64_t index = first + i * ranks + world->all().rank();
      if (index < samples) indices.push_back({index});
    }
    // A rank without samples left still takes part in the broadcasts of this pass.
    const bool idle = indices.empty();
    if (idle) indices.push_back({0});
    TESSERA_ASSIGN_OR_RETURN(const Batch batch, data.Read(indices));
    const double loss = store.model().Loss(runner.weights(), batch, runner).item<double>();
    TESSERA_RETURN_IF_ERROR(runner.status());
    if (idle) continue;
    sums[0] += loss;
    sums[1] += static_cast<double>(batch.target_count);
  }
  const at::Tensor total = at::tensor({sums[0], sums[1]}, at::kDouble);
  TESSERA_RETURN_IF_ERROR(world->all().AllReduceSum(total)->Wait());
  const double tokens = total[1].item<double>();
  return AssembledEvaluation{total[0].item<double>() / std::max(1.0, tokens), static_cast<int64_t>(tokens)};
}

}  // namespace tessera::worker

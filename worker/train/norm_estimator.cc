#include "worker/train/norm_estimator.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/status_macros.h"
#include "worker/data/sampler.h"
#include "worker/device/placed_batch.h"

namespace tessera::worker {
namespace {

constexpr int64_t kMostPasses = 16;

// Every rank's sums in one message.
absl::Status SumOverRanks(std::span<const at::Tensor> buffers, Communicator& all) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& buffer : buffers) flat.push_back(buffer.reshape({-1}));
  const at::Tensor sum = at::cat(flat);
  TESSERA_RETURN_IF_ERROR(all.AllReduceSum(sum)->Wait());
  int64_t offset = 0;
  for (const at::Tensor& buffer : buffers) {
    buffer.copy_(sum.narrow(0, offset, buffer.numel()).view(buffer.sizes()));
    offset += buffer.numel();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status EstimateNormStatistics(const UnitStore& store, WeightFetcher* fetcher, World* world,
                                    const Dataset& data, const NormEstimateOptions& options) {
  const plan::ModelShape& shape = store.model().shape();
  if (shape.buffers.empty()) return absl::OkStatus();
  const at::NoGradGuard no_grad;
  const std::span<const at::Tensor> buffers = std::span(store.weights()).subspan(shape.parameters.size());
  for (const at::Tensor& buffer : buffers) buffer.zero_();

  const int ranks = world->all().size();
  const std::vector<int64_t> shares(ranks, options.batch);
  const int64_t passes = std::clamp<int64_t>(
      (options.samples + ranks * options.batch - 1) / (ranks * options.batch), 1, kMostPasses);
  const Sampler sampler(data.samples(), options.seed);
  const bool assembled = options.from == NormEstimate::kAssembled;
  const Pass pass{.norm = NormSource::kEstimate};
  for (int64_t i = 0; i < passes; ++i) {
    TESSERA_ASSIGN_OR_RETURN(Batch read, data.Read(sampler.MicroBatch(i, 0, 1, world->all().rank(), shares)));
    const Batch batch = ToDevice(std::move(read), store.options().device);
    if (assembled) {
      StreamedRunner runner(store, fetcher, options.residual, pass);
      TESSERA_RETURN_IF_ERROR(runner.Begin());
      store.model().Logits(runner.weights(), batch, runner);
      TESSERA_RETURN_IF_ERROR(runner.status());
    } else {
      TrainingRunner runner(store, fetcher, /*reducer=*/nullptr, {.residual = options.residual}, i, pass);
      TESSERA_RETURN_IF_ERROR(runner.Begin());
      store.model().Logits(runner.weights(), batch, runner);
      TESSERA_RETURN_IF_ERROR(runner.status());
    }
  }
  TESSERA_RETURN_IF_ERROR(SumOverRanks(buffers, world->all()));
  for (size_t i = 0; i < buffers.size(); ++i) {
    const int block = shape.buffers[i].block;
    int64_t holders = ranks;
    if (!assembled && block != plan::kNoBlock && !store.options().backward_masking) {
      holders = static_cast<int64_t>(store.plan().Holders(block + 1).size());
    }
    buffers[i].div_(static_cast<double>(passes * holders));
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker

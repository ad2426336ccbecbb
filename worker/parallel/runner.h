// Block runners: what a rank does at each residual block of the model.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "scheduler/plan/mask_plan.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/parallel/gradient_reducer.h"
#include "worker/parallel/unit_store.h"
#include "worker/parallel/weight_fetcher.h"

namespace tessera::worker {

// How masked residual branches are scaled (sdp.md: where the paper is silent). C is the mean share of workers
// that hold the block's maskable units; always-on blocks are never scaled, nor is backward masking, whose
// forward pass is whole.
enum class ResidualScale : uint8_t { kNone, kTrainInverse, kEvaluation };

double TrainingScale(const UnitStore& store, int block, ResidualScale residual);    // 1 or 1/C
double EvaluationScale(const UnitStore& store, int block, ResidualScale residual);  // 1 or C

struct RunnerOptions {
  ResidualScale residual = ResidualScale::kEvaluation;
  int checkpoint_every = 0;  // every k-th block keeps its input alone; 0: none
  // Regularisers, as baselines. Huang et al., arXiv 1603.09382: block l of L is skipped by a whole
  // micro-batch with probability l / L * stochastic_depth, and its branch is scaled by the inverse
  // of the other probability; dropout is of a block's branch.
  double stochastic_depth = 0;
  double dropout = 0;
  uint64_t seed = 1;
};

// The training pass of one micro-batch. Forward masking: an absent block is its shortcut. Weights that do
// not stay are fetched before a block and before its backward, the next block's meanwhile.
class TrainingRunner final : public BlockRunner {
 public:
  // All outlive the backward pass. reducer may be null. draw: a number of this micro-batch and rank.
  TrainingRunner(const UnitStore& store, WeightFetcher* fetcher, GradientReducer* reducer,
                 const RunnerOptions& options, uint64_t draw = 0, Pass pass = {.norm = NormSource::kBatch})
      : BlockRunner(pass),
        store_(store),
        fetcher_(fetcher),
        reducer_(reducer),
        options_(options),
        draw_(draw),
        weights_(store.weights()) {}
  ~TrainingRunner() override;

  absl::Status Begin();  // fetches what stands outside the blocks
  // To be given to the model with this runner.
  const Weights& weights() const { return weights_; }
  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override;
  void End();  // after backward; frees what was fetched
  // First failure. Forward goes on with shortcuts, backward throws: the pass is void.
  const absl::Status& status() const { return status_; }

 private:
  at::Tensor RunBody(int block, const at::Tensor& x, const BlockBody& body);
  at::Tensor Regularized(int block, const at::Tensor& x, const BlockBody& body, double scale);
  void BeforeBackward(int block);
  int Next(int block, int direction) const;

  const UnitStore& store_;
  WeightFetcher* fetcher_;
  GradientReducer* reducer_;
  const RunnerOptions options_;
  const uint64_t draw_;
  Weights weights_;
  int entered_ = plan::kNoBlock;  // the block whose backward runs
  absl::Status status_;
};

// The assembled model on every rank, one block at a time: what some rank lacks of a block is sent by
// its owner, used and freed. All ranks run the same number of forward passes. Without gradients.
class StreamedRunner final : public BlockRunner {
 public:
  StreamedRunner(const UnitStore& store, WeightFetcher* fetcher, ResidualScale residual, Pass pass = {});
  absl::Status Begin();  // before each series of passes: what stands outside the blocks
  // To be given to the model with this runner; blocks come and go in it.
  const Weights& weights() const { return weights_; }
  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override;
  // First failed transfer. Blocks after it were skipped: the result is void.
  const absl::Status& status() const { return status_; }

 private:
  bool IsHere(int block) const;  // on every rank
  absl::Status Assemble(int block);

  const UnitStore& store_;
  WeightFetcher* fetcher_;
  ResidualScale residual_;
  Weights weights_;
  absl::Status status_;
};

}  // namespace tessera::worker

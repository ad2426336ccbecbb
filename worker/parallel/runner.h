// Block runners: what a rank does at each residual block of the model.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "scheduler/plan/mask_plan.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

// How masked residual branches are scaled (sdp.md: where the paper is silent). C is the share of workers
// that hold the block; always-on blocks are never scaled.
enum class ResidualScale : uint8_t { kNone, kTrainInverse, kEvaluation };

double TrainingScale(const plan::MaskPlan& plan, int unit, ResidualScale residual);    // 1 or 1/C
double EvaluationScale(const plan::MaskPlan& plan, int unit, ResidualScale residual);  // 1 or C

// Forward masking: an absent block is its shortcut.
class MaskedRunner final : public BlockRunner {
 public:
  MaskedRunner(const UnitStore& store, ResidualScale residual, Pass pass = {.norm = NormSource::kBatch})
      : BlockRunner(pass), store_(store), residual_(residual) {}
  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override;

 private:
  const UnitStore& store_;
  ResidualScale residual_;
};

// The assembled model on every rank, one block at a time: a block that some rank lacks is broadcast
// by its owner, used and freed. All ranks run the same number of forward passes. Without gradients.
class StreamedRunner final : public BlockRunner {
 public:
  StreamedRunner(const UnitStore& store, World* world, ResidualScale residual, Pass pass = {});
  // To be given to the model with this runner; blocks come and go in it.
  const Weights& weights() const { return weights_; }
  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override;
  // First failed broadcast. Blocks after it were skipped: the result is void.
  const absl::Status& status() const { return status_; }

 private:
  const UnitStore& store_;
  World* world_;
  ResidualScale residual_;
  Weights weights_;
  absl::Status status_;
};

}  // namespace tessera::worker

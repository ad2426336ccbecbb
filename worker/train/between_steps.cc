// What a trainer does between steps: it evaluates the model and writes checkpoints.
#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "base/status_macros.h"
#include "worker/nn/autocast.h"
#include "worker/train/evaluator.h"
#include "worker/train/holder_checksum.h"
#include "worker/train/norm_estimator.h"
#include "worker/train/trainer.h"

namespace tessera::worker {
namespace {

constexpr int64_t kRetryInterval = 10;  // steps after which a wished checkpoint that failed is tried again

}  // namespace

// A checkpoint that fails between steps is tried again at the next occasion; the one before it is still
// complete.
absl::Status Trainer::OutliveCheckpoint(const absl::Status& status, bool wished) {
  if (status.ok() || absl::IsUnavailable(status)) return status;
  if (wished) retry_step_ = step_ + kRetryInterval;
  if (store_->rank() == 0) {
    spdlog::error("checkpoint failed, training goes on step={} error=\"{}\"", step_,
                  std::string(status.message()));
  }
  return absl::OkStatus();
}

// Evaluation and checkpoint between steps.
absl::Status Trainer::AfterStep(const Agreement& agreed) {
  const auto due = [&](int64_t interval) { return interval > 0 && step_ % interval == 0; };
  const bool again = agreed.checkpoint || due(options_.checkpoint_interval);
  if (writer_ != nullptr && writer_->active() && (agreed.checkpoint_written || again)) {
    TESSERA_RETURN_IF_ERROR(OutliveCheckpoint(FinishCheckpoint(), checkpoint_wished_));
  }
  if (step_ >= options_.schedule.total_steps) return absl::OkStatus();
  if (due(options_.checksum_interval)) {
    TESSERA_RETURN_IF_ERROR(CompareHolders(*store_, context_.world->all()));
  }
  if (due(options_.evaluation_interval)) {
    TESSERA_RETURN_IF_ERROR(Evaluate());
    context_.reports->OnPhase(TrainerPhase::kTraining, step_);
  }
  if (!again) return absl::OkStatus();
  checkpoint_wished_ = agreed.checkpoint;
  return OutliveCheckpoint(BeginCheckpoint(), agreed.checkpoint);
}

absl::Status Trainer::Evaluate() {
  if (context_.validation == nullptr || validated_step_ == step_) {
    return absl::OkStatus();
  }
  context_.reports->OnPhase(TrainerPhase::kEvaluating, step_);
  EvaluationOptions evaluation;
  evaluation.tokens = options_.evaluation_tokens;
  evaluation.batch = options_.batch;
  evaluation.targets_per_sample = options_.targets_per_sample;
  evaluation.residual = options_.runner.residual;
  TESSERA_RETURN_IF_ERROR(EstimateNorms());
  const Autocast autocast(options_.bf16);
  TESSERA_ASSIGN_OR_RETURN(
      const AssembledEvaluation result,
      EvaluateAssembled(*store_, fetcher_.get(), context_.world, *context_.validation, evaluation));
  validation_loss_ = result.loss;
  validated_step_ = step_;
  context_.reports->OnEvaluation(step_, result.loss, result.tokens);
  if (result.accuracy) context_.reports->OnAccuracy(step_, *result.accuracy);
  return absl::OkStatus();
}

absl::Status Trainer::EstimateNorms() {
  if (estimated_step_ == step_) return absl::OkStatus();
  const Autocast autocast(options_.bf16);
  if (writer_ != nullptr) writer_->BeforeUpdate(0);  // the buffers are written with the first unit
  NormEstimateOptions estimate;
  estimate.from = options_.norm_estimate;
  estimate.batch = options_.batch;
  estimate.seed = options_.seed;
  estimate.residual = options_.runner.residual;
  TESSERA_RETURN_IF_ERROR(
      EstimateNormStatistics(*store_, fetcher_.get(), context_.world, *context_.train, estimate));
  estimated_step_ = step_;
  return absl::OkStatus();
}

absl::Status Trainer::BeginCheckpoint() {
  if (writer_ == nullptr || checkpoint_step_ == step_) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(EstimateNorms());
  reducer_->Refresh();
  CheckpointInfo info;
  info.step = step_;
  info.tokens = tokens_;
  info.samples = samples_;
  info.seed = options_.seed;
  info.plan_generation = context_.signals->plan_generation.load();
  info.job = options_.job;
  TESSERA_RETURN_IF_ERROR(
      writer_->Begin(info, *store_, pieces_ != nullptr ? pieces_->residual() : residual_));
  checkpoint_step_ = step_;
  return absl::OkStatus();
}

absl::Status Trainer::FinishCheckpoint() {
  absl::StatusOr<std::string> written = writer_->Finish();
  const int64_t step = std::exchange(checkpoint_step_, -1);
  if (!written.ok()) return written.status();
  checkpoint_ = *std::move(written);
  checkpoint_step_ = step;
  context_.reports->OnCheckpoint(step, checkpoint_);
  return absl::OkStatus();
}

absl::Status Trainer::CheckpointNow() {
  if (writer_ == nullptr) return absl::OkStatus();
  context_.reports->OnPhase(TrainerPhase::kCheckpointing, step_);
  if (writer_->active()) {
    // One of an earlier step that fails is no loss when this one is written.
    const absl::Status status = FinishCheckpoint();
    if (absl::IsUnavailable(status)) return status;
  }
  TESSERA_RETURN_IF_ERROR(BeginCheckpoint());
  return writer_->active() ? FinishCheckpoint() : absl::OkStatus();
}

}  // namespace tessera::worker

#include "worker/train/text_log.h"

#include <spdlog/spdlog.h>

#include "absl/time/clock.h"

namespace tessera::worker {
namespace {

constexpr absl::Duration kBetweenSteps = absl::Seconds(10);

const char* NameOf(TrainerPhase phase) {
  switch (phase) {
    case TrainerPhase::kLoading:
      return "loading";
    case TrainerPhase::kTraining:
      return "training";
    case TrainerPhase::kEvaluating:
      return "evaluating";
    case TrainerPhase::kCheckpointing:
      return "checkpointing";
    case TrainerPhase::kExporting:
      return "exporting";
  }
  return "unknown";
}

}  // namespace

void TextLog::OnPhase(TrainerPhase phase, int64_t step) {
  spdlog::info("event=phase {} step={} phase={}", prefix_, step, NameOf(phase));
}

void TextLog::OnStep(const StepReport& report) {
  const absl::Time now = absl::Now();
  if (!speaks_ || (now < next_ && report.step < report.total_steps)) return;
  next_ = now + kBetweenSteps;
  spdlog::info("event=step {} step={} of={} loss={:.4f} gradient_norm={:.3g} seconds={:.3g} slowest_rank={}",
               prefix_, report.step, report.total_steps, report.loss, report.gradient_norm,
               report.step_seconds, report.slowest_rank);
}

void TextLog::OnAccuracy(int64_t step, double accuracy) {
  if (speaks_) spdlog::info("event=evaluated {} step={} validation_accuracy={:.4f}", prefix_, step, accuracy);
}

void TextLog::OnResumed(int64_t step, const std::string& path, const std::vector<std::string>& passed_over) {
  if (!speaks_) return;
  for (const std::string& damaged : passed_over) {
    spdlog::warn("event=checkpoint_damaged {} error=\"{}\"", prefix_, damaged);
  }
  spdlog::info("event=resumed {} step={} checkpoint={}", prefix_, step, path);
}

void TextLog::OnEvaluation(int64_t step, double validation_loss, int64_t tokens) {
  if (speaks_)
    spdlog::info("event=evaluated {} step={} validation_loss={:.4f} tokens={}", prefix_, step,
                 validation_loss, tokens);
}

void TextLog::OnCheckpoint(int64_t step, const std::string& path) {
  if (speaks_) spdlog::info("event=checkpoint {} step={} path={}", prefix_, step, path);
}

}  // namespace tessera::worker

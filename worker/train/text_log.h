// What happens, in lines for people: rank 0 tells of steps (at most every few seconds), evaluations and
// checkpoints; every rank of the phases it enters.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "worker/train/report_sink.h"

namespace tessera::worker {

class TextLog final : public ReportSink {
 public:
  // `prefix`: "job=... epoch=... rank=..." of every line.
  TextLog(std::string prefix, bool speaks) : prefix_(std::move(prefix)), speaks_(speaks) {}

  void OnPhase(TrainerPhase phase, int64_t step) override;
  void OnStep(const StepReport& report) override;
  void OnResumed(int64_t step, const std::string& path, const std::vector<std::string>& passed_over) override;
  void OnEvaluation(int64_t step, double validation_loss, int64_t tokens) override;
  void OnAccuracy(int64_t step, double accuracy) override;
  void OnCheckpoint(int64_t step, const std::string& path) override;

 private:
  const std::string prefix_;
  const bool speaks_;
  absl::Time next_ = absl::InfinitePast();
};

}  // namespace tessera::worker

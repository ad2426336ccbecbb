// One JSON object per line in <run>/metrics.jsonl: a line per step, and one per evaluation.
#pragma once

#include <fstream>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/train/report_sink.h"

namespace tessera::worker {

class MetricsLog final : public ReportSink {
 public:
  // Continues the file after `resumed_step`: lines of later steps, from a run that was interrupted, are
  // removed.
  static absl::StatusOr<std::unique_ptr<MetricsLog>> Open(const std::string& path, int64_t resumed_step);

  void OnStep(const StepReport& report) override;
  void OnEvaluation(int64_t step, double validation_loss, int64_t tokens) override;
  void OnAccuracy(int64_t step, double accuracy) override;

 private:
  explicit MetricsLog(std::ofstream out) : out_(std::move(out)) {}
  std::ofstream out_;
};

}  // namespace tessera::worker

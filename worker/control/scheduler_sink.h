// Tells the scheduler what the trainer reports. Lives on the trainer's thread.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "worker/control/control_client.h"
#include "worker/train/report_sink.h"

namespace tessera::worker {

class SchedulerSink final : public ReportSink {
 public:
  explicit SchedulerSink(ControlClient* client) : client_(client) {}

  void OnPhase(TrainerPhase phase, int64_t step) override;
  void OnStep(const StepReport& report) override;
  void OnResumed(int64_t step, const std::string& path, const std::vector<std::string>& passed_over) override;
  void OnStatistics(int64_t step, int64_t generation, const std::vector<LayerStatistic>& layers) override;
  void OnEvaluation(int64_t step, double validation_loss, int64_t tokens) override;
  void OnAccuracy(int64_t step, double accuracy) override;
  void OnCheckpoint(int64_t step, const std::string& path) override;
  void OnMemoryShortage(int64_t step, const std::string& error) override;

 private:
  ControlClient* client_;
  v1::Progress last_;
  absl::Time profiled_ = absl::InfinitePast();  // the allocator
};

}  // namespace tessera::worker

// Scalars in TensorBoard's event file format: records of {length, masked CRC-32C of
// the length, tensorflow.Event, masked CRC-32C of the event}, all little-endian.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/train/report_sink.h"

namespace tessera::worker {

class EventFile final : public ReportSink {
 public:
  // Creates <directory>/events.out.tfevents.<seconds>.<host>; a resumed run adds a second file.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& directory, absl::Time now);

  void OnStep(const StepReport& report) override;
  void OnEvaluation(int64_t step, double validation_loss, int64_t tokens) override;
  void OnAccuracy(int64_t step, double accuracy) override;

 private:
  explicit EventFile(std::ofstream out) : out_(std::move(out)) {}
  void AddScalars(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  std::ofstream out_;
};

// Exposed for the test.
std::string EventRecord(const std::string& event);

}  // namespace tessera::worker

// The worker's own /metrics in Prometheus' text format.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/train/report_sink.h"

namespace tessera::worker {

struct WorkerMetricsOptions {
  std::string job;
  std::string ns;
  int rank = 0;
  double coverage = 1;                                      // share of the maskable elements
  int64_t predicted_memory_bytes = 0;                       // the plan's peak
  std::vector<std::pair<std::string, int64_t>> parameters;  // names and elements, by index of the shape
};

// Parameters of all blocks that do the same have one: numbers between dots become stars.
std::string LayerGroupOf(const std::string& parameter);

class WorkerMetrics : public ReportSink {
 public:
  // address: "127.0.0.1:0" takes a free port. Serves no series before Describe.
  static absl::StatusOr<std::unique_ptr<WorkerMetrics>> Serve(const std::string& address);
  virtual std::string address() const = 0;                         // "<host>:<port>"
  virtual void Describe(const WorkerMetricsOptions& options) = 0;  // once
};

}  // namespace tessera::worker

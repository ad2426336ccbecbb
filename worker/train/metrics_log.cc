#include "worker/train/metrics_log.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace tessera::worker {

using nlohmann::json;

absl::StatusOr<std::unique_ptr<MetricsLog>> MetricsLog::Open(const std::string& path, int64_t resumed_step) {
  std::string kept;
  if (std::ifstream in(path); in) {
    for (std::string line; std::getline(in, line);) {
      const json item = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (item.is_object() && item.value("step", int64_t{0}) <= resumed_step && resumed_step > 0) {
        absl::StrAppend(&kept, line, "\n");
      }
    }
  }
  const std::string next = path + ".tmp";
  std::ofstream out(next, std::ios::trunc);
  out << kept << std::flush;
  std::error_code error;
  std::filesystem::rename(next, path, error);
  if (!out || error) return absl::FailedPreconditionError(absl::StrCat(path, ": can't write"));
  return std::unique_ptr<MetricsLog>(new MetricsLog(std::move(out)));
}

void MetricsLog::OnStep(const StepReport& report) {
  const double rate =
      report.step_seconds > 0 ? static_cast<double>(report.step_tokens) / report.step_seconds : 0;
  const json line = {{"step", report.step},
                     {"loss", report.loss},
                     {"learning_rate", report.learning_rate},
                     {"gradient_norm", report.gradient_norm},
                     {"tokens", report.tokens},
                     {"tokens_per_second", rate},
                     {"step_seconds", report.step_seconds},
                     {"compute_seconds", report.compute_seconds},
                     {"sync_seconds", report.sync_seconds},
                     {"traffic_bytes", report.traffic_bytes},
                     {"memory_used_bytes", report.memory_used_bytes},
                     {"memory_peak_bytes", report.memory_peak_bytes},
                     {"resident_bytes", report.resident_bytes},
                     {"slowest_rank", report.slowest_rank}};
  out_ << line.dump() << '\n' << std::flush;
}

void MetricsLog::OnAccuracy(int64_t step, double accuracy) {
  out_ << json{{"step", step}, {"validation_accuracy", accuracy}}.dump() << '\n' << std::flush;
}

void MetricsLog::OnEvaluation(int64_t step, double validation_loss, int64_t tokens) {
  out_ << json{{"step", step}, {"validation_loss", validation_loss}, {"validation_tokens", tokens}}.dump()
       << '\n'
       << std::flush;
}

}  // namespace tessera::worker

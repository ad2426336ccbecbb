#include "scheduler/controller/planning_evidence.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kMostShapes = 256;
constexpr double kMostRatio = 4;  // more is a fault of something else

std::string Path(const std::string& state_directory) {
  return absl::StrCat(state_directory, "/planning-evidence.json");
}

// [{"shape": "<16 hex digits>", "ratio": 1.04}, ...], oldest first.
nlohmann::json Read(const std::string& state_directory) {
  std::ifstream file(Path(state_directory));
  auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  return json.is_array() ? json : nlohmann::json::array();
}

double RatioOf(const nlohmann::json& all, const std::string& shape) {
  for (const auto& entry : all) {
    if (!entry.is_object() || entry.value("shape", "") != shape) continue;
    const auto ratio = entry.find("ratio");
    if (ratio != entry.end() && ratio->is_number()) return std::clamp(ratio->get<double>(), 1.0, kMostRatio);
  }
  return 1;
}

}  // namespace

double PeakOverPlan(const v1::TrainingJobStatus& status) {
  double largest = 0;
  for (const v1::WorkerStatus& worker : status.workers()) {
    const int64_t peak = worker.memory_peak_bytes(), predicted = worker.memory_predicted_bytes();
    if (predicted <= 0 || peak - predicted < kNotableBytes) continue;
    const double ratio = static_cast<double>(peak) / static_cast<double>(predicted);
    if (ratio >= kNotableExcess) largest = std::max(largest, ratio);
  }
  return largest;
}

double RecordedPeakOverPlan(const std::string& state_directory, uint64_t shape_fingerprint) {
  return RatioOf(Read(state_directory), absl::StrFormat("%016x", shape_fingerprint));
}

bool RecordPeakOverPlan(const std::string& state_directory, uint64_t shape_fingerprint, double ratio) {
  const std::string shape = absl::StrFormat("%016x", shape_fingerprint);
  const nlohmann::json before = Read(state_directory);
  nlohmann::json after = nlohmann::json::array();
  for (const auto& entry : before) {
    if (entry.is_object() && entry.value("shape", "") != shape) after.push_back(entry);
  }
  after.push_back(
      {{"shape", shape}, {"ratio", std::clamp(std::max(ratio, RatioOf(before, shape)), 1.0, kMostRatio)}});
  while (after.size() > kMostShapes) after.erase(after.begin());
  const std::string next = Path(state_directory) + ".new";
  std::ofstream file(next, std::ios::trunc);
  if (!(file << after.dump(1) << "\n") || !file.flush()) return false;
  std::error_code error;
  std::filesystem::rename(next, Path(state_directory), error);
  return !error;
}

}  // namespace tessera::scheduler

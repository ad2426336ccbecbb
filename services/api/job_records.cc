#include "services/api/job_records.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "proto/tessera/v1/violation.h"
#include "scheduler/controller/checkpoint_finder.h"

namespace tessera::services {
namespace {

using google::protobuf::FieldDescriptor;

// A line of metrics.jsonl; keys are the point's field names, others are left out. False for a line that is
// cut off.
bool ReadPoint(const std::string& line, v1::MetricPoint* point) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  const auto* reflection = point->GetReflection();
  for (int i = 0; i < point->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = point->GetDescriptor()->field(i);
    const auto value = json.find(field->name());
    if (value == json.end() || !value->is_number()) continue;  // NaN is written as null
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      reflection->SetInt64(point, field, value->get<int64_t>());
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
      reflection->SetInt32(point, field, value->get<int32_t>());
    } else {
      reflection->SetDouble(point, field, value->get<double>());
    }
  }
  return true;
}

absl::Status CheckRequest(const v1::GetMetricsRequest& request) {
  std::vector<spec::Violation> violations;
  for (const auto& [path, value] : {std::pair<const char*, int64_t>{"afterStep", request.after_step()},
                                    {"maxPoints", request.max_points()}}) {
    if (value < 0) {
      violations.push_back({.path = path, .value = absl::StrCat(value), .message = "must not be negative"});
    }
  }
  return spec::MakeInvalid(violations);
}

}  // namespace

absl::StatusOr<v1::GetMetricsResponse> ReadMetrics(const v1::TrainingJob& job,
                                                   const v1::GetMetricsRequest& request) {
  TESSERA_RETURN_IF_ERROR(CheckRequest(request));
  v1::GetMetricsResponse response;
  response.set_last_step(request.after_step());
  if (job.status().run_directory().empty()) return response;
  std::ifstream file(job.status().run_directory() + "/metrics.jsonl");
  std::vector<v1::MetricPoint> points;
  for (std::string line; std::getline(file, line);) {
    v1::MetricPoint point;
    if (!ReadPoint(line, &point)) continue;
    // An evaluation of the untrained model is at step 0.
    const bool first = point.step() == 0 && request.after_step() == 0;
    if (point.step() > request.after_step() || first) points.push_back(std::move(point));
  }
  const size_t most =
      request.max_points() == 0 ? kDefaultMetricPoints : std::min(request.max_points(), kMaxMetricPoints);
  const size_t stride = std::max<size_t>(1, (points.size() + most - 1) / most);
  for (size_t i = 0; i < points.size(); ++i) {
    response.set_last_step(std::max(response.last_step(), points[i].step()));
    const bool kept = (points.size() - 1 - i) % stride == 0;
    if (kept || points[i].has_validation_loss()) *response.add_points() = std::move(points[i]);
  }
  return response;
}

v1::ListCheckpointsResponse FindJobCheckpoints(const v1::TrainingJob& job) {
  v1::ListCheckpointsResponse response;
  const std::string& run_directory = job.status().run_directory();
  if (run_directory.empty()) return response;
  for (const auto& found : scheduler::FindCheckpoints(scheduler::CheckpointDirectory(job, run_directory))) {
    const std::string path = found.path + "/manifest.json";
    struct stat info;
    std::ifstream file(path);
    const auto manifest = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!manifest.is_object() || ::stat(path.c_str(), &info) != 0) continue;  // pruned meanwhile
    v1::Checkpoint* checkpoint = response.add_checkpoints();
    checkpoint->set_step(found.step);
    checkpoint->set_path(found.path);
    checkpoint->mutable_create_time()->set_seconds(info.st_mtime);
    checkpoint->set_workers(manifest.value("workers", 0));
    int64_t bytes = info.st_size;
    for (const auto& file : manifest.value("files", nlohmann::json::array()))
      bytes += file.value("bytes", int64_t{0});
    checkpoint->set_bytes(bytes);
  }
  return response;
}

}  // namespace tessera::services

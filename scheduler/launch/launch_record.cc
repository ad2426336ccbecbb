#include "scheduler/launch/launch_record.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace tessera::scheduler {
namespace {

std::string PathOf(const std::string& run_directory, int epoch) {
  return absl::StrCat(run_directory, "/logs/epoch-", epoch, "-processes.json");
}

}  // namespace

std::string Encode(const LaunchRecord& record) {
  nlohmann::json workers = nlohmann::json::array();
  for (const ProcessIdentity& worker : record.workers) {
    workers.push_back({{"pid", worker.pid}, {"start", worker.start}});
  }
  return nlohmann::json{{"launcher", "local"},   {"job", record.job_uid},
                        {"epoch", record.epoch}, {"world_size", record.world_size},
                        {"node", record.node},   {"boot", record.boot_id},
                        {"workers", workers}}
      .dump();
}

absl::StatusOr<LaunchRecord> DecodeLaunchRecord(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("launcher") != "local")
      return absl::InvalidArgumentError("processes were started by another launcher");
    LaunchRecord record;
    record.job_uid = json.at("job");
    record.epoch = json.at("epoch");
    record.world_size = json.at("world_size");
    record.node = json.at("node");
    record.boot_id = json.at("boot");
    for (const auto& worker : json.at("workers"))
      record.workers.push_back({worker.at("pid"), worker.at("start")});
    return record;
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(absl::StrCat("record of started processes: ", error.what()));
  }
}

absl::Status Save(const std::string& run_directory, const LaunchRecord& record) {
  const std::string path = PathOf(run_directory, record.epoch);
  const std::string next = path + ".next";
  {
    std::ofstream file(next, std::ios::trunc);
    file << Encode(record);
    if (!file.flush()) return absl::InternalError(absl::StrCat("writing '", next, "'"));
  }
  std::error_code error;
  std::filesystem::rename(next, path, error);
  if (error) return absl::InternalError(absl::StrCat("writing '", path, "': ", error.message()));
  return absl::OkStatus();
}

absl::StatusOr<LaunchRecord> LoadLaunchRecord(const std::string& run_directory, int epoch) {
  std::ifstream file(PathOf(run_directory, epoch));
  if (!file) return absl::NotFoundError("nothing was started");
  std::stringstream text;
  text << file.rdbuf();
  return DecodeLaunchRecord(text.str());
}

}  // namespace tessera::scheduler

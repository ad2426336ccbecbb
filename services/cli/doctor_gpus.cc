#include "services/cli/doctor_gpus.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/cli/quantity.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::json;

constexpr char kOnCpu[] = "jobs with spec.resources.gpus are refused; workers train on the CPU with Gloo";

// CUDA's 13020 is 13.2.
std::string CudaVersion(const Json& value) {
  const int number = value.is_number_integer() ? value.get<int>() : 0;
  return absl::StrCat(number / 1000, ".", number % 1000 / 10);
}

// NCCL's 23007 is 2.30.7.
std::string NcclVersion(const Json& value) {
  const int number = value.is_number_integer() ? value.get<int>() : 0;
  return absl::StrCat(number / 10000, ".", number / 100 % 100, ".", number % 100);
}

std::string Links(const v1::DeviceProfile& device) {
  std::vector<std::string> links;
  if (device.pcie_lanes() > 0) {
    links.push_back(absl::StrCat("PCIe ", device.pcie_generation(), " x", device.pcie_lanes()));
  }
  if (device.nvlinks() > 0) links.push_back(absl::StrCat(device.nvlinks(), " NVLinks"));
  links.push_back(device.peers().empty() ? "reaches no other GPU"
                                         : absl::StrCat("reaches ", absl::StrJoin(device.peers(), ", ")));
  return absl::StrJoin(links, ", ");
}

Finding Device(const v1::DeviceProfile& device) {
  const std::string subject = absl::StrCat("GPU ", device.name());
  if (device.total_bytes() == 0) {
    return {subject, Health::kNote, "can't be read", "look at the rights on /dev/nvidia*"};
  }
  return {subject, Health::kGood,
          absl::StrCat(device.model(), ", ", FormatBytes(device.total_bytes()), ", ",
                       FormatBytes(device.free_bytes()), " free, ", Links(device)),
          ""};
}

Finding Worker(const std::string& answer) {
  const Json json = Json::parse(answer, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return {"GPU use", Health::kNote, "tessera-worker does not say which GPUs it can use",
            "run `tessera-worker gpus`"};
  }
  if (json.contains("error")) {
    return {"GPU use", Health::kNote, absl::StrCat("none: ", json["error"].get<std::string>()),
            absl::StrCat("a worker with the plug-in comes from `./dev build cuda`; until then ", kOnCpu)};
  }
  const size_t count = json.contains("devices") ? json["devices"].size() : 0;
  return {"GPU use", Health::kGood,
          absl::StrCat("up to ", count, " workers of a job with spec.resources.gpus 1, NCCL ",
                       NcclVersion(json.value("nccl", Json())), ", CUDA ",
                       CudaVersion(json.value("runtime", Json())), ", driver for CUDA ",
                       CudaVersion(json.value("driver", Json()))),
          ""};
}

}  // namespace

std::vector<Finding> GpuFindings(const absl::StatusOr<std::vector<v1::DeviceProfile>>& devices,
                                 const std::string& worker) {
  if (absl::IsNotFound(devices.status()) || (devices.ok() && devices->empty())) {
    return {{"GPU", Health::kGood, absl::StrCat("none; ", kOnCpu), ""}};
  }
  if (!devices.ok()) {
    return {{"GPU", Health::kNote, std::string(devices.status().message()),
             absl::StrCat("mend the driver; until then ", kOnCpu)}};
  }
  std::vector<Finding> findings;
  if (const std::string& driver = devices->front().driver(); !driver.empty()) {
    findings.push_back({"GPU driver", Health::kGood, driver, ""});
  }
  for (const v1::DeviceProfile& device : *devices) findings.push_back(Device(device));
  findings.push_back(Worker(worker));
  return findings;
}

}  // namespace tessera::cli

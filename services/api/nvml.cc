#include "services/api/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace tessera::services {
namespace {

// The part of NVML's binary interface that is used; it is kept stable by the driver.
using Device = void*;
struct Memory {
  unsigned long long total, free, used;  // NOLINT(google-runtime-int): NVML's types
};
struct MemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;  // NOLINT(google-runtime-int)
};
struct PciInfo {
  char legacy[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
constexpr unsigned int kMostNvlinks =
    36;                        // asked for: a link that a device has not is an error, not one more
constexpr int kReachRead = 0;  // NVML_P2P_CAPS_INDEX_READ
constexpr int kReachable = 0;  // NVML_P2P_STATUS_OK
constexpr unsigned int kMemoryV2 = static_cast<unsigned int>(sizeof(MemoryV2)) | (2u << 24);
constexpr int kSuccess = 0;

struct Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned int*) = nullptr;
  int (*handle)(unsigned int, Device*) = nullptr;
  int (*name)(Device, char*, unsigned int) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*memory_v2)(Device, MemoryV2*) = nullptr;  // null in drivers before 510
  // Null where the driver has them not, like the one above.
  int (*driver)(char*, unsigned int) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*pcie_generation)(Device, unsigned int*) = nullptr;
  int (*pcie_lanes)(Device, unsigned int*) = nullptr;
  int (*nvlink)(Device, unsigned int, int*) = nullptr;
  int (*reach)(Device, Device, int, int*) = nullptr;
};

template <typename F>
bool Find(void* library, const char* symbol, F* function) {
  *function = reinterpret_cast<F>(::dlsym(library, symbol));
  return *function != nullptr;
}

void ProfileLinks(const Functions& nvml, Device device, unsigned int count, v1::DeviceProfile* profile) {
  if (PciInfo pci{}; nvml.pci != nullptr && nvml.pci(device, &pci) == kSuccess) {
    pci.bus_id[sizeof pci.bus_id - 1] = '\0';
    profile->set_bus_id(pci.bus_id);
  }
  unsigned int number = 0;
  if (nvml.pcie_generation != nullptr && nvml.pcie_generation(device, &number) == kSuccess) {
    profile->set_pcie_generation(static_cast<int>(number));
  }
  if (nvml.pcie_lanes != nullptr && nvml.pcie_lanes(device, &number) == kSuccess) {
    profile->set_pcie_lanes(static_cast<int>(number));
  }
  for (unsigned int link = 0; nvml.nvlink != nullptr && link < kMostNvlinks; ++link) {
    if (int active = 0; nvml.nvlink(device, link, &active) == kSuccess && active != 0) {
      profile->set_nvlinks(profile->nvlinks() + 1);
    }
  }
  for (unsigned int peer = 0; nvml.reach != nullptr && peer < count; ++peer) {
    Device other = nullptr;
    int status = -1;
    if (nvml.handle(peer, &other) == kSuccess && other != device &&
        nvml.reach(device, other, kReachRead, &status) == kSuccess && status == kReachable) {
      profile->add_peers(absl::StrCat("cuda:", peer));
    }
  }
}

v1::DeviceProfile Profile(const Functions& nvml, unsigned int index, unsigned int count) {
  v1::DeviceProfile profile;
  profile.set_name(absl::StrCat("cuda:", index));
  Device device = nullptr;
  if (nvml.handle(index, &device) != kSuccess) return profile;
  char name[96] = "";
  if (nvml.name(device, name, sizeof name) == kSuccess) {
    name[sizeof name - 1] = '\0';
    profile.set_model(name);
  }
  ProfileLinks(nvml, device, count, &profile);
  MemoryV2 whole{.version = kMemoryV2};
  if (nvml.memory_v2 != nullptr && nvml.memory_v2(device, &whole) == kSuccess) {
    profile.set_total_bytes(static_cast<int64_t>(whole.total));
    profile.set_free_bytes(static_cast<int64_t>(whole.free));
    profile.set_reserved_bytes(static_cast<int64_t>(whole.reserved));
    return profile;
  }
  if (Memory memory{}; nvml.memory(device, &memory) == kSuccess) {
    profile.set_total_bytes(static_cast<int64_t>(memory.total));
    profile.set_free_bytes(static_cast<int64_t>(memory.free));
  }
  return profile;
}

}  // namespace

std::vector<std::string> VisibleGpus(const v1::NodeProfile& node, const char* visible) {
  std::vector<std::string> all, listed;
  for (const v1::DeviceProfile& device : node.devices()) {
    const absl::string_view name = device.name();
    // Of one that may not be used nothing is known.
    if (absl::StartsWith(name, "cuda:") && !(device.model().empty() && device.total_bytes() == 0)) {
      all.emplace_back(absl::StripPrefix(name, "cuda:"));
    }
  }
  if (visible == nullptr || all.empty()) return all;
  for (const absl::string_view token : absl::StrSplit(visible, ',')) {
    std::string gpu(absl::StripAsciiWhitespace(token));
    int number = 0;
    const bool numbered = absl::SimpleAtoi(gpu, &number);
    const bool there = !numbered || std::find(all.begin(), all.end(), absl::StrCat(number)) != all.end();
    if (gpu.empty() || !there) break;
    if (std::find(listed.begin(), listed.end(), gpu) == listed.end()) listed.push_back(std::move(gpu));
  }
  return listed;
}

absl::StatusOr<std::vector<v1::DeviceProfile>> ProfileNvidiaDevices(const std::string& library) {
  const std::unique_ptr<void, int (*)(void*)> opened(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL),
                                                     [](void* handle) { return ::dlclose(handle); });
  if (opened == nullptr) return absl::NotFoundError(absl::StrCat("no ", library, ": no NVIDIA driver here"));
  Functions nvml;
  const bool complete = Find(opened.get(), "nvmlInit_v2", &nvml.init) &&
                        Find(opened.get(), "nvmlShutdown", &nvml.shutdown) &&
                        Find(opened.get(), "nvmlDeviceGetCount_v2", &nvml.count) &&
                        Find(opened.get(), "nvmlDeviceGetHandleByIndex_v2", &nvml.handle) &&
                        Find(opened.get(), "nvmlDeviceGetName", &nvml.name) &&
                        Find(opened.get(), "nvmlDeviceGetMemoryInfo", &nvml.memory);
  if (!complete) return absl::FailedPreconditionError(absl::StrCat(library, " lacks functions of NVML"));
  Find(opened.get(), "nvmlDeviceGetMemoryInfo_v2", &nvml.memory_v2);
  Find(opened.get(), "nvmlSystemGetDriverVersion", &nvml.driver);
  Find(opened.get(), "nvmlDeviceGetPciInfo_v3", &nvml.pci);
  Find(opened.get(), "nvmlDeviceGetCurrPcieLinkGeneration", &nvml.pcie_generation);
  Find(opened.get(), "nvmlDeviceGetCurrPcieLinkWidth", &nvml.pcie_lanes);
  Find(opened.get(), "nvmlDeviceGetNvLinkState", &nvml.nvlink);
  Find(opened.get(), "nvmlDeviceGetP2PStatus", &nvml.reach);
  if (const int error = nvml.init(); error != kSuccess) {
    return absl::FailedPreconditionError(absl::StrCat("NVML does not start: error ", error));
  }
  unsigned int count = 0;
  const int error = nvml.count(&count);
  std::vector<v1::DeviceProfile> devices;
  for (unsigned int i = 0; error == kSuccess && i < count; ++i) devices.push_back(Profile(nvml, i, count));
  char driver[96] = "";
  if (nvml.driver != nullptr && nvml.driver(driver, sizeof driver) == kSuccess) {
    driver[sizeof driver - 1] = '\0';
    for (v1::DeviceProfile& device : devices) device.set_driver(driver);
  }
  nvml.shutdown();
  if (error != kSuccess)
    return absl::FailedPreconditionError(absl::StrCat("NVML does not count devices: error ", error));
  return devices;
}

}  // namespace tessera::services

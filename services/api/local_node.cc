#include "services/api/local_node.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "services/api/nvml.h"

namespace tessera::services {
namespace {

// The number in a one-line file; 0 when there is none ("max" among others).
int64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : 0;
}

int64_t MemoryInfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  int64_t kibibytes = 0;
  while (file >> word) {
    if (word == key + ":" && file >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

int UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return 1;
}

struct GroupFiles {
  const char* limit;
  const char* used;
  const char* cached;  // key in memory.stat
};

// Of the file cache the part that has not been used lately: what a kubelet leaves out, too.
int64_t CachedBytes(const std::string& stat_file, const std::string& key) {
  std::ifstream file(stat_file);
  std::string word;
  int64_t bytes = 0;
  while (file >> word >> bytes) {
    if (word == key) return bytes;
  }
  return 0;
}

// Limits of `group` and the groups above it, the smallest one into `memory`.
void ReadGroups(const std::string& root, std::string group, const GroupFiles& files, CgroupMemory* memory) {
  constexpr int64_t kNoLimit = int64_t{1} << 60;  // version 1 writes a number for none
  while (true) {
    const std::string folder = root + group + "/";
    const int64_t limit = NumberIn(folder + files.limit);
    if (limit > 0 && limit < kNoLimit && (memory->limit == 0 || limit < memory->limit)) {
      const int64_t used = NumberIn(folder + files.used);
      *memory = {limit, std::max<int64_t>(0, used - CachedBytes(folder + "memory.stat", files.cached))};
    }
    if (group.empty()) return;
    group.erase(group.rfind('/'));
  }
}

}  // namespace

CgroupMemory ReadCgroupMemory(const std::string& self, const std::string& root) {
  CgroupMemory memory;
  std::ifstream file(self);
  for (std::string line; std::getline(file, line);) {  // "0::/user/session", "9:memory:/docker/1"
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    const std::string group = parts[2] == "/" ? "" : parts[2];
    if (parts[1].empty()) {
      ReadGroups(root, group, {"memory.max", "memory.current", "inactive_file"}, &memory);
    } else if (absl::StrContains(absl::StrCat(",", parts[1], ","), ",memory,")) {
      ReadGroups(root + "/memory", group,
                 {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}, &memory);
    }
  }
  return memory;
}

int64_t PlannableBytes(int64_t total_bytes) {
  constexpr int64_t kLeastReserve = int64_t{512} << 20;
  return total_bytes - std::min(total_bytes / 2, std::max(total_bytes / 10, kLeastReserve));
}

namespace {

struct MachineMemory {
  int64_t total = 0, available = 0;  // 0 = unknown
};

MachineMemory ReadMachineMemory() {
  MachineMemory memory{MemoryInfo("MemTotal"), MemoryInfo("MemAvailable")};
  if (const CgroupMemory cgroup = ReadCgroupMemory(); cgroup.limit > 0 && cgroup.limit < memory.total) {
    memory.total = cgroup.limit;
    memory.available = std::clamp<int64_t>(cgroup.limit - cgroup.used, 0, memory.available);
  }
  return memory;
}

}  // namespace

int64_t AvailableBytes() {
  const MachineMemory memory = ReadMachineMemory();
  return memory.total > 0 ? memory.available : -1;
}

v1::NodeProfile ProfileLocalNode() {
  v1::NodeProfile node;
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  node.set_name(name);
  v1::DeviceProfile* cpu = node.add_devices();
  cpu->set_name("cpu");
  cpu->set_cores(UsableCores());
  const MachineMemory memory = ReadMachineMemory();
  cpu->set_total_bytes(memory.total);
  cpu->set_free_bytes(memory.available);
  // A driver that is there and does not answer hides its devices: there is no half-known device.
  if (auto devices = ProfileNvidiaDevices(); devices.ok()) {
    for (v1::DeviceProfile& device : *devices) *node.add_devices() = std::move(device);
  }
  node.mutable_profile_time()->set_seconds(absl::ToUnixSeconds(absl::Now()));
  return node;
}

}  // namespace tessera::services

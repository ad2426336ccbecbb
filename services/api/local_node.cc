#include "services/api/local_node.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/time/clock.h"

namespace tessera::services {
namespace {

// The number in a one-line file; 0 when there is none ("max" among others).
int64_t NumberIn(const char* path) {
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

}  // namespace

v1::NodeProfile ProfileLocalNode() {
  v1::NodeProfile node;
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  node.set_name(name);
  v1::DeviceProfile* cpu = node.add_devices();
  cpu->set_name("cpu");
  cpu->set_cores(UsableCores());
  int64_t total = MemoryInfo("MemTotal");
  int64_t available = MemoryInfo("MemAvailable");
  if (const int64_t limit = NumberIn("/sys/fs/cgroup/memory.max"); limit > 0 && limit < total) {
    total = limit;
    available = std::clamp<int64_t>(limit - NumberIn("/sys/fs/cgroup/memory.current"), 0, available);
  }
  cpu->set_total_bytes(total);
  cpu->set_free_bytes(available);
  node.mutable_profile_time()->set_seconds(absl::ToUnixSeconds(absl::Now()));
  return node;
}

}  // namespace tessera::services

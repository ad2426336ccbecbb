#include "worker/profile/process_memory.h"

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

// Below this a page more or less is not the allocator's doing.
constexpr int64_t kLeastPeak = int64_t{8} << 20;
// Training, whose steps are alike, was seen to need a ninth at most; different work in a row fragments more.
constexpr double kMostSlack = 0.12;

// The kernel's high-water mark of resident bytes; 0: not told.
int64_t MostResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

bool ResetMostResidentBytes() {
  std::ofstream file("/proc/self/clear_refs");
  return static_cast<bool>(file << "5" << std::flush);
}

}  // namespace

plan::ProcessMemory MeasureProcess(absl::FunctionRef<void()> work) {
  work();
  ::malloc_trim(0);
  plan::ProcessMemory memory;
  const int64_t live = LiveTensorBytes();
  memory.base = std::max<int64_t>(0, ResidentBytes() - live);
  if (memory.base == 0 || !ResetMostResidentBytes()) return memory;
  ResetPeakTensorBytes();
  work();
  const int64_t peak = PeakTensorBytes() - live;
  if (peak < kLeastPeak) return memory;
  const int64_t beyond = MostResidentBytes() - memory.base - PeakTensorBytes();
  memory.slack = std::clamp(static_cast<double>(beyond) / static_cast<double>(peak), 0.0, kMostSlack);
  return memory;
}

}  // namespace tessera::worker

#include "worker/profile/process_memory.h"

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

// Below this a page more or less is not the allocator's doing, and the ratio is a guess on the safe side.
constexpr int64_t kLeastPeak = int64_t{8} << 20;
constexpr double kGuessedSlack = 0.5;
// Heaps are settled after a few steps: blocks that were mapped one by one at first come from them once such a
// one was freed.
constexpr int kSteps = 3;

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

plan::ProcessMemory MeasureProcess(absl::FunctionRef<void()> step) {
  step();
  ::malloc_trim(0);
  plan::ProcessMemory memory;
  memory.base = std::max<int64_t>(0, ResidentBytes() - LiveTensorBytes());
  if (memory.base == 0 || !ResetMostResidentBytes()) return memory;
  ResetPeakTensorBytes();
  for (int n = 0; n < kSteps; ++n) step();
  const int64_t peak = PeakTensorBytes();
  memory.slack = kGuessedSlack;
  if (peak < kLeastPeak) return memory;
  const int64_t beyond = MostResidentBytes() - memory.base - peak;
  memory.slack = std::max(0.0, static_cast<double>(beyond) / static_cast<double>(peak));
  return memory;
}

}  // namespace tessera::worker

#include "worker/profile/allocator_profile.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

namespace tessera::worker {

namespace {

std::function<AllocatorStatistics()>& DeviceProfiler() {
  static std::function<AllocatorStatistics()> profiler;
  return profiler;
}

}  // namespace

void ProfileDevice(std::function<AllocatorStatistics()> profile) { DeviceProfiler() = std::move(profile); }

AllocatorStatistics ProfileAllocator() {
  if (DeviceProfiler()) return DeviceProfiler()();
  const struct mallinfo2 now = ::mallinfo2();
  AllocatorStatistics statistics;
  statistics.reserved = static_cast<int64_t>(now.arena + now.hblkhd);
  statistics.allocated = static_cast<int64_t>(now.uordblks + now.hblkhd);
  statistics.free = static_cast<int64_t>(now.fordblks);
  statistics.largest_block = std::min(statistics.free, static_cast<int64_t>(now.keepcost));
  return statistics;
}

}  // namespace tessera::worker

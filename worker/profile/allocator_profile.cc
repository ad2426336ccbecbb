#include "worker/profile/allocator_profile.h"

#include <malloc.h>

#include <algorithm>

namespace tessera::worker {

AllocatorStatistics ProfileAllocator() {
  const struct mallinfo2 now = ::mallinfo2();
  AllocatorStatistics statistics;
  statistics.reserved = static_cast<int64_t>(now.arena + now.hblkhd);
  statistics.allocated = static_cast<int64_t>(now.uordblks + now.hblkhd);
  statistics.free = static_cast<int64_t>(now.fordblks);
  statistics.largest_block = std::min(statistics.free, static_cast<int64_t>(now.keepcost));
  return statistics;
}

}  // namespace tessera::worker

// What the allocator under the tensors has taken from the system, and in how many pieces the rest lies.
#pragma once

#include <cstdint>

namespace tessera::worker {

// Bytes of this process's C allocator, which CPU tensors come from.
struct AllocatorStatistics {
  int64_t reserved = 0;       // taken from the system: heaps, and blocks mapped one by one
  int64_t allocated = 0;      // of that, in use, by tensors or others
  int64_t free = 0;           // of that, kept for later requests
  int64_t largest_block = 0;  // a lower bound: the free end of the heap, which is certainly one block

  // Share of the free bytes that is not certainly one block, 0-1; 0 when nothing is free.
  double fragmentation() const {
    return free > 0 ? 1 - static_cast<double>(largest_block) / static_cast<double>(free) : 0;
  }
};

// Walks the allocator's lists: for once a second, not for every step.
AllocatorStatistics ProfileAllocator();

}  // namespace tessera::worker

// What the allocator under the tensors has taken from the system, and in how many pieces the rest lies.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera::worker {

// Bytes of the allocator that tensors come from: of this process's C allocator, or of a device.
struct AllocatorStatistics {
  std::string device = "cpu";
  int64_t reserved = 0;       // taken from the system: heaps, and blocks mapped one by one
  int64_t allocated = 0;      // of that, in use, by tensors or others
  int64_t free = 0;           // of that, kept for later requests
  int64_t largest_block = 0;  // a lower bound: the free end of the heap, which is certainly one block
  int64_t device_total = 0;   // of a device; 0 for the host, like the next
  int64_t other = 0;          // in use on the device outside the allocator: NCCL, CUDA, other processes

  // Share of the free bytes that is not certainly one block, 0-1; 0 when nothing is free.
  double fragmentation() const {
    return free > 0 ? 1 - static_cast<double>(largest_block) / static_cast<double>(free) : 0;
  }
};

// Walks the allocator's lists: for once a second, not for every step.
AllocatorStatistics ProfileAllocator();

// From now on ProfileAllocator is `profile`, of the device that holds the tensors. Before any thread asks.
void ProfileDevice(std::function<AllocatorStatistics()> profile);

}  // namespace tessera::worker

#include "worker/profile/memory_counter.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <new>

namespace tessera::worker {
namespace {

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};
std::atomic<int64_t> limit_bytes{0};

void Add(int64_t bytes) {
  const int64_t now = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

// The requested size stands in front of the data, one alignment unit before it,
// so that freeing needs nothing but the pointer (raw_deallocate has no more).
constexpr size_t kHeader = c10::gAlignment;
static_assert(kHeader >= sizeof(int64_t));

void Free(void* data) {
  if (data == nullptr) return;
  char* start = static_cast<char*>(data) - kHeader;
  int64_t bytes;
  std::memcpy(&bytes, start, sizeof(bytes));
  live_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  c10::free_cpu(start);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, at::Device(at::kCPU)};
    const int64_t limit = limit_bytes.load(std::memory_order_relaxed);
    if (limit > 0 && LiveTensorBytes() + static_cast<int64_t>(bytes) > limit) throw std::bad_alloc();
    char* start = static_cast<char*>(c10::alloc_cpu(bytes + kHeader));
    const int64_t size = static_cast<int64_t>(bytes);
    std::memcpy(start, &size, sizeof(size));
    Add(size);
    void* data = start + kHeader;
    return {data, data, &Free, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }
};

}  // namespace

void InstallMemoryCounter() {
  static const bool installed = [] {
    // Never destroyed: tensors with static lifetime are freed after it.
    c10::SetAllocator(c10::kCPU, new CountingAllocator, 1);
    return true;
  }();
  (void)installed;
}

int64_t LiveTensorBytes() { return live_bytes.load(std::memory_order_relaxed); }
int64_t PeakTensorBytes() { return peak_bytes.load(std::memory_order_relaxed); }
void LimitTensorBytes(int64_t bytes) { limit_bytes.store(bytes, std::memory_order_relaxed); }
void ResetPeakTensorBytes() { peak_bytes.store(LiveTensorBytes(), std::memory_order_relaxed); }

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;  // pages
  return file >> total >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace tessera::worker

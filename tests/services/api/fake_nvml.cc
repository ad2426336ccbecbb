// Stands in for libnvidia-ml.so in tests. FAKE_NVML in the environment: "broken" does not start, "old" has no
// second version of the memory information.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
bool Is(const char* what) {
  const char* set = std::getenv("FAKE_NVML");
  return set != nullptr && std::strcmp(set, what) == 0;
}
int running = 0;
}  // namespace

extern "C" {

int nvmlInit_v2() {
  if (Is("broken")) return 9;  // the driver is not loaded
  ++running;
  return 0;
}
int nvmlShutdown() {
  --running;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 3;
  return running == 1 ? 0 : 1;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  if (index == 2) return 4;  // no permission
  *device = reinterpret_cast<void*>(static_cast<size_t>(index + 1));
  return 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned int length) {
  std::snprintf(name, length, "Fake GPU %zu", reinterpret_cast<size_t>(device));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  const unsigned long long all = reinterpret_cast<size_t>(device) * 80'000'000'000ULL;
  memory[0] = all;
  memory[1] = all / 2;
  memory[2] = all / 2;
  return 0;
}
struct MemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* memory) {
  if (Is("old")) return 13;                              // no such function
  if (memory->version != (40u | (2u << 24))) return 25;  // a version mismatch, as NVML says it
  const unsigned long long all = reinterpret_cast<size_t>(device) * 80'000'000'000ULL;
  *memory = {memory->version, all, 600'000'000, all / 2, all / 2 - 600'000'000};
  return 0;
}

}  // extern "C"

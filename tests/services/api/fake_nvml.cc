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
size_t numbers[] = {1, 2, 3};  // a device's handle points to its own
size_t NumberOf(const void* device) { return *static_cast<const size_t*>(device); }
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
  *device = &numbers[index];
  return 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned int length) {
  std::snprintf(name, length, "Fake GPU %zu", NumberOf(device));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  const unsigned long long all = NumberOf(device) * 80'000'000'000ULL;
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
  const unsigned long long all = NumberOf(device) * 80'000'000'000ULL;
  *memory = {memory->version, all, 600'000'000, all / 2, all / 2 - 600'000'000};
  return 0;
}

int nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  std::snprintf(version, length, "580.1.2");
  return 0;
}
struct PciInfo {
  char legacy[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02zX:00.0", NumberOf(device));
  return 0;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned int* generation) {
  *generation = 5;
  return 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned int* lanes) {
  *lanes = 16;
  return 0;
}
int nvmlDeviceGetNvLinkState(void*, unsigned int link, int* active) {
  *active = link % 2 == 0 ? 1 : 0;
  return link < 8 ? 0 : 2;
}
int nvmlDeviceGetP2PStatus(void* from, void*, int index, int* status) {
  *status = NumberOf(from) == 1 ? 0 : 3;
  return index == 0 ? 0 : 2;
}

}  // extern "C"

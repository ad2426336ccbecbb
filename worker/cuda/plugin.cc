// The plug-in's entry: see worker/device/gpu.h.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "worker/cuda/kept_device.h"
#include "worker/cuda/nccl_world.h"
#include "worker/device/gpu.h"

namespace tessera::cuda {
namespace {

using worker::GpuDevice;
using worker::GpuInventory;
using worker::GpuMemory;

std::string BusId(int device) {
  char bus_id[32] = "";
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device) != cudaSuccess) (void)cudaGetLastError();
  return bus_id;
}

// CUDA's own words for the first two are the same.
std::string WhyNone(cudaError_t error, const GpuInventory& inventory) {
  if (error == cudaSuccess) return "none is visible";
  if (error != cudaErrorInsufficientDriver) return cudaGetErrorString(error);
  if (inventory.driver == 0) return "there is no NVIDIA driver (libcuda.so.1)";
  return absl::StrCat("the NVIDIA driver is for CUDA ", inventory.driver / 1000, ".",
                      inventory.driver % 1000 / 10, ", and CUDA ", inventory.runtime / 1000, " is needed");
}

class CudaGpu final : public worker::Gpu {
 public:
  absl::StatusOr<GpuInventory> Inventory() override {
    GpuInventory inventory;
    cudaDriverGetVersion(&inventory.driver);
    cudaRuntimeGetVersion(&inventory.runtime);
    ncclGetVersion(&inventory.nccl);
    int count = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
      (void)cudaGetLastError();
      return absl::FailedPreconditionError(absl::StrCat("no GPU can be used: ", WhyNone(error, inventory)));
    }
    for (int i = 0; i < count; ++i) inventory.devices.push_back(Describe(i, count));
    return inventory;
  }

  absl::Status Use(int index) override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) (void)cudaGetLastError();
    if (index < 0 || index >= count) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no GPU ", index, "; this process sees ", count));
    }
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
    device_ = index;
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<worker::World>> MakeWorld(const worker::NcclOptions& options,
                                                           worker::RendezvousClient* rendezvous,
                                                           std::unique_ptr<worker::World> host) override {
    return MakeNcclWorld(options, device_, BusId(device_), rendezvous, std::move(host));
  }

  GpuMemory Memory(bool blocks) override {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    const auto index = static_cast<c10::DeviceIndex>(device_);
    GpuMemory memory;
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) (void)cudaGetLastError();
    memory.device_free = static_cast<int64_t>(free);
    memory.device_total = static_cast<int64_t>(total);
    if (!allocator::get()->initialized()) return memory;
    constexpr size_t kAllPools = 0;
    const auto statistics = allocator::getDeviceStats(index);
    memory.reserved = statistics.reserved_bytes[kAllPools].current;
    memory.allocated = statistics.allocated_bytes[kAllPools].current;
    memory.peak = statistics.allocated_bytes[kAllPools].peak;
    if (!blocks) return memory;
    for (const auto& segment : allocator::snapshot({0, 0}, /*include_traces=*/false).segments) {
      if (segment.device != index) continue;
      for (const auto& block : segment.blocks) {
        if (!block.allocated && !block.active) {
          memory.largest_block = std::max(memory.largest_block, static_cast<int64_t>(block.size));
        }
      }
    }
    return memory;
  }

  void EmptyCache() override { c10::cuda::CUDACachingAllocator::emptyCache(); }

  worker::KeptDevice& kept() override { return *kept_; }

  worker::SoftmaxLossKernel softmax_loss() override { return &SoftmaxLossOnDevice; }

 private:
  // Without a context on the device, which would take memory of each.
  static GpuDevice Describe(int index, int count) {
    GpuDevice device;
    device.index = index;
    device.bus_id = BusId(index);
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) {
      device.model = properties.name;
      device.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
      device.capability = 10 * properties.major + properties.minor;
    }
    for (int peer = 0; peer < count; ++peer) {
      int reaches = 0;
      if (peer != index && cudaDeviceCanAccessPeer(&reaches, index, peer) == cudaSuccess && reaches != 0) {
        device.peers.push_back(peer);
      }
    }
    (void)cudaGetLastError();
    return device;
  }

  int device_ = 0;
  std::unique_ptr<worker::KeptDevice> kept_ = MakeCudaKeptDevice();
};

}  // namespace
}  // namespace tessera::cuda

extern "C" __attribute__((visibility("default"))) tessera::worker::Gpu* tessera_gpu_1() {
  static auto* const gpu = new tessera::cuda::CudaGpu;  // never destroyed: the driver may be gone at exit
  return gpu;
}

// What a worker asks of CUDA. The one implementation is a plug-in (worker/cuda) that is opened at run time,
// so that a program without it needs no CUDA library and a machine without a GPU runs the same program.
//
// Must be opened before LibTorch is asked anything about CUDA: it remembers the first answer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/comm/nccl_rules.h"
#include "worker/comm/rendezvous_client.h"
#include "worker/dropping/kept_operations.h"
#include "worker/nn/device_softmax.h"

namespace tessera::worker {

struct GpuDevice {
  int index = 0;
  std::string model;
  std::string bus_id;  // on PCI: the same in every process and container
  int64_t total_bytes = 0, free_bytes = 0;
  int capability = 0;      // 90 for 9.0
  std::vector<int> peers;  // indices of devices whose memory it can reach
};

struct GpuInventory {
  int driver = 0, runtime = 0;  // CUDA's, 13020 for 13.2
  int nccl = 0;                 // 23007 for 2.30.7
  std::vector<GpuDevice> devices;
};

// Of the device in use, bytes.
struct GpuMemory {
  int64_t reserved = 0;       // by LibTorch's allocator
  int64_t allocated = 0;      // of that, in tensors
  int64_t peak = 0;           // of allocated, since the start
  int64_t largest_block = 0;  // of the reserved rest; 0 where blocks were not looked at
  int64_t device_total = 0, device_free = 0;
  // In use on the device but not by the allocator: NCCL, CUDA's context, other processes.
  int64_t other() const { return device_total - device_free - reserved; }
};

class Gpu {
 public:
  virtual ~Gpu() = default;
  // FailedPrecondition: no driver, or no device that it lets this process see.
  virtual absl::StatusOr<GpuInventory> Inventory() = 0;
  // Makes it the device of this process. InvalidArgument: there is none of this index.
  virtual absl::Status Use(int index) = 0;
  // Tensors of the device in use go over NCCL, those of the host over `host`. Waits for all ranks.
  // `rendezvous` outlives the world. FailedPrecondition: two ranks use one device.
  virtual absl::StatusOr<std::unique_ptr<World>> MakeWorld(const NcclOptions& options,
                                                           RendezvousClient* rendezvous,
                                                           std::unique_ptr<World> host) = 0;
  // blocks: looks at every block as well, for the largest; for once a second, not for every step.
  virtual GpuMemory Memory(bool blocks) = 0;
  virtual void EmptyCache() = 0;  // gives memory without a tensor back to the device
  virtual KeptDevice& kept() = 0;
  virtual SoftmaxLossKernel softmax_loss() = 0;
};

// Opens `library`, or without a name the plug-in where the build or the image puts it. NotFound: it is not
// there, or a library that it needs is not. FailedPrecondition: it is of another version. The plug-in stays
// open for the life of the process.
absl::StatusOr<Gpu*> OpenGpuPlugin(const std::string& library = "");

// The plug-in's one symbol; its name changes with this interface.
inline constexpr char kGpuPluginSymbol[] = "tessera_gpu_1";
using GpuPluginEntry = Gpu* (*)();

// Copies to the device by way of page-locked memory, without waiting; of the same device: the tensor itself.
at::Tensor ToDevice(const at::Tensor& tensor, at::Device device);

}  // namespace tessera::worker

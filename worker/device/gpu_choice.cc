#include "worker/device/gpu_choice.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace tessera::worker {
namespace {

// What kernels are compiled for (worker/cuda/CMakeLists.txt): bf16 is in hardware from there on.
constexpr int kLeastCapability = 80;

}  // namespace

absl::StatusOr<GpuChoice> ChooseGpu(const v1::TrainingJobSpec& spec,
                                    const absl::StatusOr<GpuInventory>& inventory, int rank) {
  if (!inventory.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("spec.resources.gpus: ", spec.resources().gpus(), " asked for, but ",
                     std::string(inventory.status().message()), "; use 0, and workers train on the CPU"));
  }
  for (const GpuDevice& device : inventory->devices) {
    if (device.capability == 0 || device.capability >= kLeastCapability) continue;  // 0: not told
    return absl::FailedPreconditionError(
        absl::StrFormat("spec.resources.gpus: GPU %d (%s) has compute capability %d.%d, and 8.0 is the "
                        "least; leave it out with "
                        "CUDA_VISIBLE_DEVICES where tesserad or the worker's container is started, or use "
                        "spec.resources.gpus 0",
                        device.index, device.model, device.capability / 10, device.capability % 10));
  }
  GpuChoice choice;
  choice.device = rank % static_cast<int>(inventory->devices.size());
  if (spec.workers().count() <= 1) {
    choice.carrier = Carrier::kNone;
  } else if (spec.backend() == v1::BACKEND_GLOO) {
    choice.carrier = Carrier::kGlooOverHost;
  }
  return choice;
}

std::string DeviceName(int device, const char* given) {
  const std::vector<std::string> names =
      absl::StrSplit(given != nullptr ? given : "", ',', absl::SkipEmpty());
  const auto index = static_cast<size_t>(device);
  return absl::StrCat("cuda:", index < names.size() ? names[index] : absl::StrCat(device));
}

absl::Status CheckGpus(const v1::TrainingJobSpec& spec, const absl::StatusOr<GpuInventory>& inventory) {
  TESSERA_ASSIGN_OR_RETURN(const GpuChoice choice, ChooseGpu(spec, inventory, 0));
  const auto devices = static_cast<int>(inventory->devices.size());
  if (choice.carrier != Carrier::kNccl || spec.workers().count() <= devices) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "spec.workers.count: ", spec.workers().count(), " workers with a GPU each, and this machine has ",
      devices, "; NCCL refuses two ranks on one GPU: use at most ", devices,
      " workers, or spec.backend gloo, which lets workers share GPUs and sends gradients by way of the "
      "host"));
}

absl::StatusOr<GpuInventory> FindGpus() {
  TESSERA_ASSIGN_OR_RETURN(Gpu * gpu, OpenGpuPlugin());
  return gpu->Inventory();
}

}  // namespace tessera::worker

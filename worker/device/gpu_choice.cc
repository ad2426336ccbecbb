#include "worker/device/gpu_choice.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tessera::worker {

absl::StatusOr<GpuChoice> ChooseGpu(const v1::TrainingJobSpec& spec,
                                    const absl::StatusOr<GpuInventory>& inventory, int rank) {
  if (!inventory.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("spec.resources.gpus: ", spec.resources().gpus(), " asked for, but ",
                     std::string(inventory.status().message()), "; use 0, and workers train on the CPU"));
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

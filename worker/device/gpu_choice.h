// Which GPU a worker computes on and what carries its gradients, or why it can't have what the job asks for.
// Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tessera/v1/job.pb.h"
#include "worker/device/gpu.h"

namespace tessera::worker {

enum class Carrier : uint8_t { kNone, kNccl, kGlooOverHost };  // none: there is one worker

inline const char* CarrierName(Carrier carrier) {
  if (carrier == Carrier::kNccl) return "nccl";
  return carrier == Carrier::kNone ? "none" : "gloo-over-host";
}

struct GpuChoice {
  int device = 0;  // of the devices this process sees
  Carrier carrier = Carrier::kNccl;
};

// Of a job with spec.resources.gpus 1. inventory: of this machine, or why there is none. backend auto is
// NCCL. FailedPrecondition names the field, what is there and what to do.
absl::StatusOr<GpuChoice> ChooseGpu(const v1::TrainingJobSpec& spec,
                                    const absl::StatusOr<GpuInventory>& inventory, int rank);

// "cuda:3": by the machine's own number where the scheduler handed out its GPUs. given: TESSERA_GPUS in the
// worker's environment, null: not set.
std::string DeviceName(int device, const char* given);

// Whether all workers of the job can run on this machine; to be asked before any is started.
absl::Status CheckGpus(const v1::TrainingJobSpec& spec, const absl::StatusOr<GpuInventory>& inventory);

// The plug-in's inventory, or why there is none.
absl::StatusOr<GpuInventory> FindGpus();

}  // namespace tessera::worker

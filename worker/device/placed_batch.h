// Batches where the model is.
#pragma once

#include "worker/device/gpu.h"
#include "worker/models/model.h"

namespace tessera::worker {

inline Batch ToDevice(Batch batch, at::Device device) {
  if (device.is_cpu()) return batch;
  batch.inputs = ToDevice(batch.inputs, device);
  batch.targets = ToDevice(batch.targets, device);
  batch.padding = ToDevice(batch.padding, device);
  return batch;
}

}  // namespace tessera::worker

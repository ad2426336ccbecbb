// A tensor that a model reads and never changes, where it is read.
#pragma once

#include <ATen/core/Tensor.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tessera::worker {

// Thread-safe. Moves when it is asked for elsewhere: a process computes on one device.
class DeviceConstant {
 public:
  explicit DeviceConstant(at::Tensor value) : value_(std::move(value)) {}
  at::Tensor On(at::Device device) const {
    absl::MutexLock lock(&mutex_);
    if (value_.device() != device) value_ = value_.to(device);
    return value_;
  }

 private:
  mutable absl::Mutex mutex_;
  mutable at::Tensor value_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::worker

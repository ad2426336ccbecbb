#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/launch/launcher.h"

namespace tessera::scheduler {

// A stack of equal blocks between an embedding and a head, with measured activations.
v1::ModelShape StackShape(int blocks, int64_t width, int64_t batch, int64_t sequence_length);

// Answers StackShape(8, 64) at the asked batch, or a set error. Thread-safe.
class FakeDescriber : public ModelDescriber {
 public:
  absl::StatusOr<v1::ModelShape> Describe(const v1::TrainingJobSpec& spec) override;
  void Stop() override {}  // outlives schedulers
  void Fail(const absl::Status& status);
  void MeasureTime(double seconds_per_token);  // of each block; 0 as it begins: not measured
  void SaveOutputs(int count);  // a block saves so many times what it returns for backward; 1 as it begins
  int calls() const;

 private:
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  int saved_outputs_ ABSL_GUARDED_BY(mutex_) = 1;
  double seconds_per_token_ ABSL_GUARDED_BY(mutex_) = 0;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::scheduler

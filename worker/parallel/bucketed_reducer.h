// Sums flat memory over the holders of each group by all-reduce, in buckets that start as soon as backward
// has filled them. What is in the memory, whole gradients or what is kept of them, is the subclass's affair.
#pragma once

#include <memory>
#include <vector>

#include "worker/parallel/gradient_reducer.h"

namespace tessera::worker {

class BucketedReducer : public GradientReducer {
 public:
  void LeaveBlock(int block) override;
  absl::Status EndMicroStep() override;

 protected:
  struct Bucket {
    int position = 0;    // in store->held()
    int64_t offset = 0;  // in the memory that it is a part of
    int64_t elements = 0;
    int lowest_parameter = 0;
    int parts = 0;
    int missing = 0;  // parts that have not come in this micro-step
    at::Tensor wire;  // what is summed, if it is not the memory itself
    std::vector<std::unique_ptr<Work>> works;
  };

  BucketedReducer(UnitStore* store, World* world, const ReducerOptions& options)
      : GradientReducer(store, world), options_(options) {}
  // Into the order of their start, which all ranks share; to be done before buckets are counted by index.
  void OrderBuckets();
  // The index of a group's bucket that has this offset.
  int BucketAt(int position, int64_t offset) const;
  void OnBegin() override;
  void PartCame(int bucket) { --buckets_[bucket].missing; }
  // Starts buckets in their order, as far as they are complete (all: regardless).
  void StartReady(bool all);
  // The flat memory of a bucket, fp32.
  virtual at::Tensor MemoryOf(const Bucket& bucket) = 0;
  // Puts zeros, or what else stands for it, where no gradient came in this step.
  virtual void FillIn(int bucket) = 0;
  // Starts the sum over the holders, in place: of the memory or of what is on the wire for it.
  virtual void StartSum(Bucket& bucket, const at::Tensor& sum);
  // After all sums of a step are in the memory, and the divisors are known.
  virtual absl::Status Complete() { return absl::OkStatus(); }

  const ReducerOptions options_;
  std::vector<Communicator*> groups_;  // by position
  std::vector<Bucket> buckets_;

 private:
  size_t next_ = 0;  // first bucket not started
};

}  // namespace tessera::worker

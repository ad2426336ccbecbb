// Sums every group's gradient over its holders by all-reduce, in buckets that start as soon as
// backward has filled them.
#pragma once

#include <memory>
#include <vector>

#include "worker/parallel/gradient_reducer.h"

namespace tessera::worker {

class AllReduceReducer final : public GradientReducer {
 public:
  // Asks the world for the groups of what is held.
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(UnitStore* store, World* world,
                                                                 const ReducerOptions& options);
  void LeaveBlock(int block) override;
  absl::Status EndMicroStep() override;

 protected:
  void Accept(int parameter, const at::Tensor& rows) override;
  void OnBegin() override;

 private:
  struct Bucket {
    int position = 0;  // in store->held()
    int64_t offset = 0;
    int64_t elements = 0;
    int lowest_parameter = 0;
    int parts = 0;
    int missing = 0;  // parts that have not come in this micro-step
    at::Tensor wire;  // what is summed, if it is not the gradient itself
    std::unique_ptr<Work> work;
  };
  // Of a parameter's gradient, what one group gets.
  struct Part {
    int position = 0;
    int bucket = 0;
    int64_t offset = 0;  // in the group's gradient
    int64_t row = 0, rows = 0;
    at::Tensor slot;      // flat view of the gradient
    bool filled = false;  // in this step; otherwise the slot holds the last step's values
    bool seen = false;    // in this micro-step
  };

  AllReduceReducer(UnitStore* store, World* world, const ReducerOptions& options)
      : GradientReducer(store, world), options_(options) {}
  void CutIntoBuckets(int position);
  void Start(Bucket& bucket);
  void StartReady(bool all);

  const ReducerOptions options_;
  std::vector<Communicator*> groups_;     // by position
  std::vector<Bucket> buckets_;           // in the order of their start, the same on all ranks
  std::vector<std::vector<Part>> parts_;  // by index of the shape
  size_t next_ = 0;                       // first bucket not started
};

}  // namespace tessera::worker

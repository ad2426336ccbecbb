// Sums every group's whole gradient over its holders by all-reduce.
#pragma once

#include <memory>
#include <vector>

#include "worker/parallel/bucketed_reducer.h"

namespace tessera::worker {

class AllReduceReducer final : public BucketedReducer {
 public:
  // Asks the world for the groups of what is held.
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(UnitStore* store, World* world,
                                                                 const ReducerOptions& options);

 protected:
  void LeaveBlock(int block) override;
  void Accept(int parameter, const at::Tensor& rows) override;
  void OnBegin() override;
  at::Tensor MemoryOf(const Bucket& bucket) override;
  void FillIn(int bucket) override;

 private:
  // Of a parameter's gradient, what one group gets.
  struct Part {
    int position = 0;
    int bucket = 0;
    int64_t offset = 0;  // in the group's gradient
    int64_t row = 0, rows = 0;
    int64_t elements = 0;
    bool filled = false;  // in this step; otherwise the slot holds anything
    bool seen = false;    // in this micro-step
  };

  AllReduceReducer(UnitStore* store, World* world, const ReducerOptions& options)
      : BucketedReducer(store, world, options) {}
  void CutIntoBuckets(int position);
  // A flat view of the gradient, which is made where it is not there.
  at::Tensor SlotOf(const Part& part);
  void MakeGradients(GroupState& state);
  // Makes those of the nearest held block before this one: its backward comes next, and what it needs
  // does not depend on when in it the first gradient comes.
  void MakeGradientsBefore(int block);

  std::vector<std::vector<Part>> parts_;  // by index of the shape
};

}  // namespace tessera::worker

// FSDP's reductions: a group's gradient is whole only from the first to the last of its parameters in
// backward; then it is summed and scattered, and each holder adds its shard to what it keeps. So every
// micro-step sends as much.
#pragma once

#include <memory>
#include <vector>

#include "worker/parallel/gradient_reducer.h"

namespace tessera::worker {

class ShardingReducer final : public GradientReducer {
 public:
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(UnitStore* store, World* world,
                                                                 const ReducerOptions& options);
  // Also waits for the reductions before the block's: at most two groups' blocks are whole at a time.
  void LeaveBlock(int block) override;
  absl::Status EndMicroStep() override;

 protected:
  void Accept(int parameter, const at::Tensor& rows) override;
  void OnBegin() override;

 private:
  struct Group {
    Communicator* holders = nullptr;
    at::Tensor whole;  // [shard * k]; undefined: nothing has come yet
    at::Tensor sum;    // [shard], under way
    at::Tensor wire;   // what is sent, if it is not `whole`
    std::unique_ptr<Work> work;
    bool reduced = false;  // started in this micro-step
  };
  struct Part {
    int position = 0;
    GroupPiece piece;
  };

  ShardingReducer(UnitStore* store, World* world, const ReducerOptions& options)
      : GradientReducer(store, world), options_(options) {}
  at::Tensor& Whole(int position);
  void Start(int position);
  void Complete(int position);

  const ReducerOptions options_;
  std::vector<Group> groups_;             // by position in store->held()
  std::vector<std::vector<Part>> parts_;  // by index of the shape
  absl::Status status_;                   // first failure
};

}  // namespace tessera::worker

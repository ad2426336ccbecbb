// FSDP's reductions of whole gradients: each holder of a group is left the sums of its shard. Every
// micro-step sends as much.
#pragma once

#include <memory>
#include <vector>

#include "worker/parallel/scattering_reducer.h"

namespace tessera::worker {

class ShardingReducer final : public ScatteringReducer {
 public:
  static absl::StatusOr<std::unique_ptr<GradientReducer>> Create(UnitStore* store, World* world,
                                                                 const ReducerOptions& options);

 protected:
  void Accept(int parameter, const at::Tensor& rows) override;
  int64_t SectionElements(int position) const override {
    return store_->FlatElements(store_->held()[position]);
  }
  void AddSum(int position, at::Tensor sum) override;

 private:
  struct Part {
    int position = 0;
    GroupPiece piece;
  };

  ShardingReducer(UnitStore* store, World* world, const ReducerOptions& options)
      : ScatteringReducer(store, world, options) {}

  std::vector<std::vector<Part>> parts_;  // by index of the shape
};

}  // namespace tessera::worker

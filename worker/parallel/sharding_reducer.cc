#include "worker/parallel/sharding_reducer.h"

#include <torch/types.h>

#include "base/status_macros.h"

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<GradientReducer>> ShardingReducer::Create(UnitStore* store, World* world,
                                                                         const ReducerOptions& options) {
  auto reducer = std::unique_ptr<ShardingReducer>(new ShardingReducer(store, world, options));
  reducer->parts_.resize(store->weights().size());
  for (int position = 0; position < static_cast<int>(store->held().size()); ++position) {
    const GroupState& state = store->held()[position];
    TESSERA_ASSIGN_OR_RETURN(Communicator * holders, world->Group(store->groups()[state.group].holders));
    reducer->AddGroup(holders);
    for (const GroupPiece& piece : state.pieces)
      reducer->parts_[piece.parameter].push_back({position, piece});
  }
  return reducer;
}

// The first sum of a step is the gradient's memory.
void ShardingReducer::AddSum(int position, at::Tensor sum) {
  GroupState& state = store_->held()[position];
  if (state.gradients.defined()) {
    state.gradients.add_(sum);
  } else {
    store_->SetGradients(state, sum.to(at::kFloat));
  }
}

void ShardingReducer::Accept(int parameter, const at::Tensor& rows) {
  for (const Part& part : parts_[parameter]) {
    const at::Tensor own = rows.narrow(0, part.piece.row, part.piece.rows);
    // Twice in one backward where a parameter is shared: sums.
    Whole(part.position).narrow(0, part.piece.offset, part.piece.elements).view(own.sizes()).add_(own);
  }
}

}  // namespace tessera::worker

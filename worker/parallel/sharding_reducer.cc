#include "worker/parallel/sharding_reducer.h"

#include <torch/types.h>

#include <utility>

#include "base/status_macros.h"

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<GradientReducer>> ShardingReducer::Create(UnitStore* store, World* world,
                                                                         const ReducerOptions& options) {
  auto reducer = std::unique_ptr<ShardingReducer>(new ShardingReducer(store, world, options));
  reducer->parts_.resize(store->weights().size());
  for (int position = 0; position < static_cast<int>(store->held().size()); ++position) {
    const GroupState& state = store->held()[position];
    TESSERA_ASSIGN_OR_RETURN(Communicator * holders, world->Group(store->groups()[state.group].holders));
    reducer->groups_.emplace_back().holders = holders;
    for (const GroupPiece& piece : state.pieces)
      reducer->parts_[piece.parameter].push_back({position, piece});
  }
  return reducer;
}

void ShardingReducer::OnBegin() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].reduced = false;
    if (first_) store_->held()[i].gradients.zero_();
  }
}

at::Tensor& ShardingReducer::Whole(int position) {
  Group& group = groups_[position];
  if (!group.whole.defined()) {
    group.whole = at::zeros({store_->held()[position].gradients.numel() * group.holders->size()}, at::kFloat);
  }
  return group.whole;
}

void ShardingReducer::Accept(int parameter, const at::Tensor& rows) {
  for (const Part& part : parts_[parameter]) {
    const at::Tensor own = rows.narrow(0, part.piece.row, part.piece.rows);
    // Twice in one backward where a parameter is shared: sums.
    Whole(part.position).narrow(0, part.piece.offset, part.piece.elements).view(own.sizes()).add_(own);
  }
}

void ShardingReducer::Start(int position) {
  Group& group = groups_[position];
  if (group.reduced) return;
  group.reduced = true;
  at::Tensor sent = Whole(position);
  if (group.holders->size() == 1) {
    store_->held()[position].gradients.add_(sent);
    group.whole.reset();
    return;
  }
  if (options_.wire == WireType::kBFloat16) {
    sent = group.wire = sent.to(at::kBFloat16);
    group.whole.reset();
  }
  group.sum = at::empty({sent.numel() / group.holders->size()}, sent.options());
  group.work = group.holders->ReduceScatterSum(sent, group.sum);
}

void ShardingReducer::Complete(int position) {
  Group& group = groups_[position];
  if (group.work == nullptr) return;
  status_.Update(group.work->Wait());
  group.work.reset();
  store_->held()[position].gradients.add_(group.sum);
  group.whole.reset();
  group.wire.reset();
  group.sum.reset();
}

void ShardingReducer::LeaveBlock(int block) {
  const at::NoGradGuard no_grad;
  for (int i = 0; i < static_cast<int>(groups_.size()); ++i) {
    const int of = store_->groups()[store_->held()[i].group].block;
    // Those of the block are started below, so that all ranks have started what is waited for here.
    if (of > block) Complete(i);
  }
  for (int i = 0; i < static_cast<int>(groups_.size()); ++i) {
    if (store_->groups()[store_->held()[i].group].block == block) Start(i);
  }
}

absl::Status ShardingReducer::EndMicroStep() {
  const at::NoGradGuard no_grad;
  for (int i = static_cast<int>(groups_.size()) - 1; i >= 0; --i) Start(i);
  for (int i = 0; i < static_cast<int>(groups_.size()); ++i) Complete(i);
  if (last_) status_.Update(WaitForTokens());
  return status_;
}

}  // namespace tessera::worker

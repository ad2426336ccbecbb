#include "worker/parallel/scattering_reducer.h"

#include <torch/types.h>

#include <utility>

namespace tessera::worker {

void ScatteringReducer::OnBegin() {
  for (Group& group : groups_) group.reduced = false;
}

at::Tensor& ScatteringReducer::Whole(int position) {
  Group& group = groups_[position];
  if (!group.whole.defined()) {
    group.whole = at::zeros({SectionElements(position) * group.holders->size()}, store_->floats());
  }
  return group.whole;
}

void ScatteringReducer::Start(int position) {
  Group& group = groups_[position];
  if (group.reduced) return;
  group.reduced = true;
  FillIn(position);
  at::Tensor sent = Whole(position);
  if (group.holders->size() == 1) {
    group.whole.reset();
    return AddSum(position, std::move(sent));
  }
  if (options_.wire == WireType::kBFloat16) {
    sent = group.wire = sent.to(at::kBFloat16);
    group.whole.reset();
  }
  group.sum = at::empty({sent.numel() / group.holders->size()}, sent.options());
  group.work = group.holders->ReduceScatterSum(sent, group.sum);
}

void ScatteringReducer::Complete(int position) {
  Group& group = groups_[position];
  if (group.work == nullptr) return;
  status_.Update(group.work->Wait());
  group.work.reset();
  group.whole.reset();
  group.wire.reset();
  AddSum(position, std::exchange(group.sum, {}));
}

void ScatteringReducer::LeaveBlock(int block) {
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

absl::Status ScatteringReducer::EndMicroStep() {
  const at::NoGradGuard no_grad;
  for (int i = static_cast<int>(groups_.size()) - 1; i >= 0; --i) Start(i);
  for (int i = 0; i < static_cast<int>(groups_.size()); ++i) Complete(i);
  if (last_) status_.Update(WaitForTokens());
  return status_;
}

}  // namespace tessera::worker

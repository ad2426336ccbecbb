#include "worker/parallel/gradient_reducer.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "worker/parallel/all_reduce_reducer.h"
#include "worker/parallel/sharding_reducer.h"

namespace tessera::worker {

class GradientReducer::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientReducer* reducer, int parameter, int dim)
      : reducer_(reducer), parameter_(parameter), dim_(dim) {}
  void operator()(const torch::autograd::Variable& variable) override {
    const at::NoGradGuard no_grad;
    at::Tensor& gradient = variable.mutable_grad();
    reducer_->Accept(parameter_, ToRows(dim_, gradient));
    gradient.reset();
  }

 private:
  GradientReducer* reducer_;
  int parameter_;
  int dim_;
};

absl::Status ConnectHolders(const plan::MaskPlan& plan, int rank, World* world, bool weights) {
  for (const std::vector<int>& holders : plan.HolderSets()) {
    if (!std::binary_search(holders.begin(), holders.end(), rank)) continue;
    TESSERA_RETURN_IF_ERROR(world->Group(holders).status());
    if (weights) TESSERA_RETURN_IF_ERROR(world->Group(holders, Channel::kWeights).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GradientReducer>> GradientReducer::Create(UnitStore* store, World* world,
                                                                         const ReducerOptions& options) {
  TESSERA_RETURN_IF_ERROR(ConnectHolders(store->plan(), store->rank(), world, store->options().sharded));
  std::unique_ptr<GradientReducer> reducer;
  if (store->options().sharded) {
    TESSERA_ASSIGN_OR_RETURN(reducer, ShardingReducer::Create(store, world, options));
  } else {
    TESSERA_ASSIGN_OR_RETURN(reducer, AllReduceReducer::Create(store, world, options));
  }
  reducer->Install();
  return reducer;
}

void GradientReducer::Install() {
  divisors_.assign(store_->held().size(), 1);
  for (const GroupState& state : store_->held()) {
    const WorkingBlock& working = *store_->Working(store_->groups()[state.group].block);
    for (const WorkingParameter& entry : working.layout.parameters) {
      const at::Tensor& leaf = store_->leaves()[entry.parameter];
      if (!leaf.defined() || torch::autograd::impl::post_acc_grad_hooks(leaf) != nullptr) continue;
      torch::autograd::impl::set_post_acc_grad_hooks(
          leaf, std::make_unique<Hook>(this, entry.parameter, entry.dim));
    }
  }
}

GradientReducer::~GradientReducer() {
  for (const at::Tensor& leaf : store_->leaves()) {
    if (leaf.defined()) torch::autograd::impl::post_acc_grad_hooks(leaf).reset();
  }
}

void GradientReducer::BeginMicroStep(bool first, bool last, int64_t tokens) {
  first_ = first;
  last_ = last;
  own_tokens_ = (first ? 0 : own_tokens_) + tokens;
  if (last) {
    // Every rank learns what each contributed, while backward goes on.
    tokens_ = at::zeros({world_->all().size()}, at::kDouble);
    token_work_ =
        world_->all().StartAllGather(at::full({1}, static_cast<double>(own_tokens_), at::kDouble), tokens_);
  }
  if (first) {  // those of a step that is done again were not used
    for (GroupState& state : store_->held()) store_->SetGradients(state, {});
  }
  OnBegin();
}

absl::Status GradientReducer::WaitForTokens() {
  if (token_work_ == nullptr) return absl::OkStatus();
  const absl::Status status = token_work_->Wait();
  token_work_.reset();
  TESSERA_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < divisors_.size(); ++i) {
    divisors_[i] = TokensOf(store_->groups()[store_->held()[i].group].holders);
  }
  return absl::OkStatus();
}

double GradientReducer::TokensOf(const std::vector<int>& ranks) const {
  double sum = 0;
  for (int rank : ranks) sum += tokens_.const_data_ptr<double>()[rank];
  return std::max(1.0, sum);
}

double GradientReducer::OwnedSquaredNorm() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> squares;
  std::vector<double> divisors;
  for (size_t i = 0; i < divisors_.size(); ++i) {
    const GroupState& state = store_->held()[i];
    // Of shards each rank counts its own.
    if (!store_->options().sharded && store_->groups()[state.group].owner() != store_->rank()) continue;
    const at::Tensor gradient = Sum(static_cast<int>(i));
    squares.push_back(at::dot(gradient, gradient));
    divisors.push_back(divisors_[i]);
  }
  if (squares.empty()) return 0;
  const at::Tensor here = at::stack(squares).to(at::kCPU);  // a device is waited for once
  double sum = 0;
  for (size_t i = 0; i < divisors.size(); ++i) {
    sum += static_cast<double>(here.const_data_ptr<float>()[i]) / (divisors[i] * divisors[i]);
  }
  return sum;
}

at::Tensor GradientReducer::Sum(int position) const {
  const GroupState& state = store_->held()[position];
  return state.gradients.narrow(0, 0, state.end - state.begin);
}

at::Tensor GradientReducer::SumOfPiece(int position, int piece) const {
  const GroupState& state = store_->held()[position];
  const GroupPiece& of = state.pieces[piece];
  const int64_t low = std::max(of.offset, state.begin), high = std::min(of.offset + of.elements, state.end);
  return state.gradients.narrow(0, low < high ? low - state.begin : 0, std::max<int64_t>(0, high - low));
}

void GradientReducer::Visit(int position, const Visitor& visitor) {
  GroupState& state = store_->held()[position];
  visitor(state);
  store_->SetGradients(state, {});
}

}  // namespace tessera::worker

#include "worker/parallel/gradient_reducer.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"

namespace tessera::worker {

class GradientReducer::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientReducer* reducer, int parameter) : reducer_(reducer), parameter_(parameter) {}
  void operator()(const torch::autograd::Variable& variable) override {
    reducer_->Accept(parameter_, variable);
  }

 private:
  GradientReducer* reducer_;
  int parameter_;
};

absl::Status ConnectHolders(const plan::MaskPlan& plan, int rank, World* world) {
  for (const std::vector<int>& holders : plan.HolderSets()) {
    if (std::binary_search(holders.begin(), holders.end(), rank)) {
      TESSERA_RETURN_IF_ERROR(world->Group(holders).status());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<GradientReducer>> GradientReducer::Create(UnitStore* store, World* world,
                                                                         const ReducerOptions& options) {
  auto reducer = std::unique_ptr<GradientReducer>(new GradientReducer(store));
  const plan::MaskPlan& plan = store->plan();
  TESSERA_RETURN_IF_ERROR(ConnectHolders(plan, store->rank(), world));
  reducer->parameters_.resize(store->weights().size());
  const int held = static_cast<int>(store->units().size());
  reducer->divisors_.assign(held, 1);
  for (int position = 0; position < held; ++position) {
    TESSERA_ASSIGN_OR_RETURN(Communicator * group, world->Group(plan.Holders(store->units()[position].unit)));
    reducer->groups_.push_back(group);
    reducer->CutIntoBuckets(position, options.bucket_bytes);
  }
  // Backward produces the parameters that forward read last first. A bucket is complete with
  // its earliest parameter, so the order of starting follows from the shape alone.
  std::stable_sort(reducer->buckets_.begin(), reducer->buckets_.end(),
                   [](const Bucket& a, const Bucket& b) { return a.lowest_parameter > b.lowest_parameter; });
  for (int b = 0; b < static_cast<int>(reducer->buckets_.size()); ++b) {
    const Bucket& bucket = reducer->buckets_[b];
    for (Parameter& parameter : reducer->parameters_) {
      if (parameter.position == bucket.position && parameter.offset >= bucket.offset &&
          parameter.offset < bucket.offset + bucket.elements) {
        parameter.bucket = b;
      }
    }
  }
  for (int p = 0; p < static_cast<int>(reducer->parameters_.size()); ++p) {
    if (reducer->parameters_[p].position < 0) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(store->weights()[p],
                                                   std::make_unique<Hook>(reducer.get(), p));
  }
  return reducer;
}

GradientReducer::~GradientReducer() {
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (parameters_[p].position >= 0)
      torch::autograd::impl::post_acc_grad_hooks(store_->weights()[p]).reset();
  }
}

void GradientReducer::CutIntoBuckets(int position, int64_t bucket_bytes) {
  const UnitState& state = store_->units()[position];
  int64_t end = state.layout.elements + 1;
  Bucket bucket;
  bucket.position = position;
  bucket.lowest_parameter = static_cast<int>(parameters_.size());
  const auto& slots = state.layout.slots;
  for (auto slot = slots.rbegin(); slot != slots.rend(); ++slot) {
    bucket.offset = slot->offset;
    bucket.elements = end - slot->offset;
    bucket.lowest_parameter = std::min(bucket.lowest_parameter, slot->parameter);
    ++bucket.parameters;
    Parameter& parameter = parameters_[slot->parameter];
    parameter.position = position;
    parameter.offset = slot->offset;
    parameter.slot = state.gradients.narrow(0, slot->offset, slot->elements);
    if (bucket.elements * 4 >= bucket_bytes || std::next(slot) == slots.rend()) {
      end = bucket.offset;
      buckets_.push_back(std::move(bucket));
      bucket = Bucket();
      bucket.position = position;
      bucket.lowest_parameter = static_cast<int>(parameters_.size());
    }
  }
}

void GradientReducer::BeginMicroStep(bool first, bool last, int64_t tokens) {
  if (first) {
    tokens_ = 0;
    next_ = 0;
    for (Parameter& parameter : parameters_) parameter.filled = false;
  }
  tokens_ += tokens;
  last_ = last;
  for (Parameter& parameter : parameters_) parameter.seen = false;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
}

void GradientReducer::Accept(int index, const at::Tensor& variable) {
  const at::NoGradGuard no_grad;
  Parameter& parameter = parameters_[index];
  at::Tensor& gradient = variable.mutable_grad();
  const at::Tensor fresh = gradient.reshape({-1});
  if (parameter.filled) {
    parameter.slot.add_(fresh);
  } else {
    parameter.slot.copy_(fresh);
  }
  gradient.reset();
  parameter.filled = true;
  if (parameter.seen) return;  // a graph that accumulates twice in one backward
  parameter.seen = true;
  if (--buckets_[parameter.bucket].missing == 0 && last_) StartReady(false);
}

// Starts buckets in their fixed order, as far as they are complete (all: regardless).
void GradientReducer::StartReady(bool all) {
  for (; next_ < buckets_.size() && (all || buckets_[next_].missing == 0); ++next_) {
    Bucket& bucket = buckets_[next_];
    UnitState& state = store_->units()[bucket.position];
    if (bucket.missing > 0) {
      for (Parameter& parameter : parameters_) {
        const bool here = parameter.position >= 0 && &buckets_[parameter.bucket] == &bucket;
        if (here && !parameter.filled) parameter.slot.zero_();
      }
    }
    if (bucket.offset + bucket.elements == state.layout.elements + 1) {
      state.gradients.data_ptr<float>()[state.layout.elements] = static_cast<float>(tokens_);
    }
    if (groups_[bucket.position]->size() == 1) continue;
    bucket.work =
        groups_[bucket.position]->AllReduceSum(state.gradients.narrow(0, bucket.offset, bucket.elements));
  }
}

absl::Status GradientReducer::Finish() {
  const at::NoGradGuard no_grad;
  StartReady(true);
  absl::Status result;
  for (Bucket& bucket : buckets_) {
    if (bucket.work == nullptr) continue;
    // Every work is waited for, also after a failure: the others still write to our tensors.
    result.Update(bucket.work->Wait());
    bucket.work.reset();
  }
  TESSERA_RETURN_IF_ERROR(result);
  for (size_t i = 0; i < divisors_.size(); ++i) {
    const UnitState& state = store_->units()[i];
    divisors_[i] = std::max(1.0f, state.gradients.data_ptr<float>()[state.layout.elements]);
  }
  return absl::OkStatus();
}

double GradientReducer::OwnedSquaredNorm() const {
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (size_t i = 0; i < divisors_.size(); ++i) {
    const UnitState& state = store_->units()[i];
    if (store_->plan().Holders(state.unit)[0] != store_->rank()) continue;
    const at::Tensor gradient = state.gradients.narrow(0, 0, state.layout.elements);
    sum += at::dot(gradient, gradient).item<double>() / (divisors_[i] * divisors_[i]);
  }
  return sum;
}

}  // namespace tessera::worker

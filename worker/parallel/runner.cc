#include "worker/parallel/runner.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/status_macros.h"
#include "scheduler/plan/counter_random.h"
#include "worker/parallel/checkpointed_block.h"

namespace tessera::worker {
namespace {

double BlockScale(const UnitStore& store, int block) {
  return store.options().backward_masking ? 1 : store.plan().BlockHolderShare(block);
}

}  // namespace

double TrainingScale(const UnitStore& store, int block, ResidualScale residual) {
  return residual == ResidualScale::kTrainInverse ? 1 / BlockScale(store, block) : 1;
}

double EvaluationScale(const UnitStore& store, int block, ResidualScale residual) {
  return residual == ResidualScale::kEvaluation ? BlockScale(store, block) : 1;
}

absl::Status TrainingRunner::Begin() {
  if (fetcher_ != nullptr) status_.Update(fetcher_->Fetch(plan::kNoBlock));
  return status_;
}

TrainingRunner::~TrainingRunner() {
  if (fetcher_ != nullptr) fetcher_->ReleaseAll();
}

void TrainingRunner::End() {
  if (reducer_ != nullptr && entered_ != plan::kNoBlock) reducer_->LeaveBlock(entered_);
  entered_ = plan::kNoBlock;
  if (fetcher_ != nullptr) fetcher_->ReleaseAll();
}

// The nearest block in a direction whose weights move; kNoBlock: none.
int TrainingRunner::Next(int block, int direction) const {
  const int blocks = static_cast<int>(store_.model().shape().blocks.size());
  for (int b = block + direction; b >= 0 && b < blocks; b += direction) {
    if (fetcher_->Moves(b)) return b;
  }
  return plan::kNoBlock;
}

at::Tensor TrainingRunner::Run(int block, const at::Tensor& x, const BlockBody& body) {
  if (store_.Working(block) == nullptr || !status_.ok()) return body.Shortcut(x);
  const bool moves = fetcher_ != nullptr && fetcher_->Moves(block);
  if (moves) {
    status_.Update(fetcher_->Fetch(block));
    if (!status_.ok()) return body.Shortcut(x);
    if (const int next = Next(block, 1); next != plan::kNoBlock) fetcher_->Prefetch(next);
  }
  if (at::GradMode::is_enabled()) store_.TieToLeaves(block, weights_);
  at::Tensor y = RunBody(block, x, body);
  if (moves) fetcher_->Release(block);
  if (y.requires_grad() && (moves || reducer_ != nullptr)) {
    if (y.is_same(x)) y = x.view_as(x);  // a hook of its own
    y.register_hook([this, block](const at::Tensor&) { BeforeBackward(block); });
  }
  return y;
}

at::Tensor TrainingRunner::RunBody(int block, const at::Tensor& x, const BlockBody& body) {
  const double scale = TrainingScale(store_, block, options_.residual);
  const bool checkpointed = options_.checkpoint_every > 0 && block % options_.checkpoint_every == 0 &&
                            at::GradMode::is_enabled() && x.requires_grad();
  if (!checkpointed) return Regularized(block, x, body, scale);
  const BlockBody again([&body](const at::Tensor& input,
                                double branch_scale) { return RunCheckpointed(body, input, branch_scale); },
                        [&body](const at::Tensor& input) { return body.Shortcut(input); });
  return Regularized(block, x, again, scale);
}

at::Tensor TrainingRunner::Regularized(int block, const at::Tensor& x, const BlockBody& body, double scale) {
  const double blocks = static_cast<double>(store_.model().shape().blocks.size());
  const double skip = options_.stochastic_depth * (block + 1) / blocks;
  if (skip > 0) {
    const uint64_t word = plan::CounterRandom(options_.seed, draw_, static_cast<uint64_t>(block), 1);
    if (static_cast<double>(word >> 11) * 0x1p-53 < skip) return body.Shortcut(x);
    scale /= 1 - skip;
  }
  at::Tensor y = body(x, scale);
  if (options_.dropout <= 0) return y;
  const at::Generator generator = at::detail::createCPUGenerator(
      plan::CounterRandom(options_.seed, draw_, static_cast<uint64_t>(block), 2));
  const double keep = 1 - options_.dropout;
  const at::Tensor past = body.Shortcut(x);
  // Drawn on the host wherever the tensors are: a seed stands for the same units on every device.
  const at::Tensor kept =
      at::empty_like(y, y.options().device(at::kCPU)).bernoulli_(keep, generator).div_(keep);
  return past + (y - past) * kept.to(y.device());
}

void TrainingRunner::BeforeBackward(int block) {
  if (entered_ != plan::kNoBlock) {
    if (reducer_ != nullptr) reducer_->LeaveBlock(entered_);
    if (fetcher_ != nullptr) fetcher_->Release(entered_);
  }
  entered_ = block;
  if (fetcher_ == nullptr || !fetcher_->Moves(block)) return;
  status_.Update(fetcher_->Fetch(block));
  if (!status_.ok()) throw std::runtime_error(std::string(status_.message()));
  if (const int next = Next(block, -1); next != plan::kNoBlock) fetcher_->Prefetch(next);
}

StreamedRunner::StreamedRunner(const UnitStore& store, WeightFetcher* fetcher, ResidualScale residual,
                               Pass pass)
    : BlockRunner(pass), store_(store), fetcher_(fetcher), residual_(residual), weights_(store.weights()) {}

absl::Status StreamedRunner::Begin() {
  if (!IsHere(plan::kNoBlock)) status_.Update(Assemble(plan::kNoBlock));
  return status_;
}

bool StreamedRunner::IsHere(int block) const {
  const StoreOptions& options = store_.options();
  if (options.sharded) return false;
  if (options.backward_masking && !options.streamed) return true;
  return std::all_of(store_.groups().begin(), store_.groups().end(), [&](const UnitGroup& group) {
    return group.block != block || static_cast<int>(group.holders.size()) == store_.plan().workers();
  });
}

absl::Status StreamedRunner::Assemble(int block) {
  std::vector<const UnitGroup*> members;
  std::vector<int> indices;
  for (int g = 0; g < static_cast<int>(store_.groups().size()); ++g) {
    if (store_.groups()[g].block != block) continue;
    members.push_back(&store_.groups()[g]);
    indices.push_back(g);
  }
  const WorkingLayout layout = LayOutBlock(store_.model().shape(), members);
  at::Tensor memory;
  if (members.size() > 1) memory = at::empty({layout.elements}, store_.floats());
  for (size_t i = 0; i < members.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(const at::Tensor flat, fetcher_->Gather(indices[i], /*to_all=*/true));
    if (members.size() == 1) memory = flat;
    for (const GroupPiece& piece : layout.pieces[i]) {
      if (members.size() == 1) break;
      memory.narrow(0, piece.home, piece.elements).copy_(flat.narrow(0, piece.offset, piece.elements));
    }
  }
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const WorkingParameter& entry = layout.parameters[i];
    const int64_t end = i + 1 < layout.parameters.size() ? layout.parameters[i + 1].home : layout.elements;
    weights_[entry.parameter] = FromRows(store_.model().shape().parameters[entry.parameter], entry.dim,
                                         memory.narrow(0, entry.home, end - entry.home));
  }
  return absl::OkStatus();
}

at::Tensor StreamedRunner::Run(int block, const at::Tensor& x, const BlockBody& body) {
  if (!status_.ok()) return body.Shortcut(x);
  const double scale = EvaluationScale(store_, block, residual_);
  if (IsHere(block)) return body(x, scale);
  const at::NoGradGuard no_grad;
  status_ = Assemble(block);
  if (!status_.ok()) return body.Shortcut(x);
  at::Tensor y = body(x, scale);
  const plan::ModelShape& shape = store_.model().shape();
  for (size_t p = 0; p < shape.parameters.size(); ++p) {
    if (shape.parameters[p].block == block) weights_[p] = store_.weights()[p];
  }
  return y;
}

}  // namespace tessera::worker

#include "worker/parallel/unit_store.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tessera::worker {
namespace {

// A weight of which the first rows alone take gradients: what reads the whole gives its leaf their part.
struct TrainLeadingRows : torch::autograd::Function<TrainLeadingRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& leaf,
                            const at::Tensor& whole, int64_t dim) {
    ctx->saved_data["dim"] = dim;
    ctx->saved_data["rows"] = leaf.size(dim);
    return whole.alias();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0].narrow(ctx->saved_data["dim"].toInt(), 0, ctx->saved_data["rows"].toInt()),
            at::Tensor(), at::Tensor()};
  }
};

void Resize(const at::Tensor& tensor, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

}  // namespace

UnitStore::UnitStore(const Model& model, const plan::MaskPlan& plan, int rank, StoreOptions options)
    : model_(model),
      plan_(plan),
      rank_(rank),
      options_(std::move(options)),
      groups_(GroupUnits(model.shape(), plan)),
      weights_(model.shape().parameters.size()),
      leaves_(model.shape().parameters.size()) {}

std::unique_ptr<UnitStore> UnitStore::CreateEmpty(const Model& model, const plan::MaskPlan& plan, int rank,
                                                  const StoreOptions& options) {
  auto store = std::unique_ptr<UnitStore>(new UnitStore(model, plan, rank, options));
  for (const plan::Buffer& buffer : model.shape().buffers) {
    store->weights_.push_back(at::full(buffer.dims, buffer.initial, store->floats()));
  }
  return store;
}

absl::StatusOr<std::unique_ptr<UnitStore>> UnitStore::Create(const Model& model, const plan::MaskPlan& plan,
                                                             int rank, const StoreOptions& options) {
  auto store = CreateEmpty(model, plan, rank, options);
  const int blocks = static_cast<int>(model.shape().blocks.size());
  for (int block = plan::kNoBlock; block < blocks; ++block) store->AddBlock(block);
  return store;
}

std::vector<int> UnitStore::GroupsOf(int block) const {
  std::vector<int> groups;
  for (int g = 0; g < static_cast<int>(groups_.size()); ++g) {
    if (groups_[g].block == block) groups.push_back(g);
  }
  return groups;
}

void UnitStore::AddBlock(int block) {
  std::vector<int> held, absent;
  for (int g : GroupsOf(block)) {
    const bool here = groups_[g].Holds(rank_);
    if (here) held.push_back(g);
    if (!here && options_.backward_masking) absent.push_back(g);
  }
  held.insert(held.end(), absent.begin(), absent.end());
  MakeBlock(block, std::move(held));
}

void UnitStore::AdoptBlock(int block, UnitStore& from) {
  const std::vector<int> ours = GroupsOf(block), theirs = from.GroupsOf(block);
  TESSERA_CHECK(ours.size() == theirs.size());
  const int shift = ours.empty() ? 0 : ours[0] - theirs[0];
  WorkingBlock& working = blocks_.emplace_back(std::move(from.blocks_[block + 1]));
  for (int& group : working.groups) group += shift;
  for (GroupState& state : from.held_) {
    if (from.groups_[state.group].block != block) continue;
    held_.push_back(state);
    held_.back().group += shift;
  }
  for (size_t p = 0; p < leaves_.size(); ++p) {
    if (model_.shape().parameters[p].block != block) continue;
    weights_[p] = from.weights_[p];
    leaves_[p] = from.leaves_[p];
  }
  from.DropBlock(block);
}

void UnitStore::AdoptBuffers(const UnitStore& from) {
  for (size_t i = leaves_.size(); i < weights_.size(); ++i) weights_[i] = from.weights_[i];
}

void UnitStore::DropBlock(int block) {
  std::erase_if(held_, [&](const GroupState& state) { return groups_[state.group].block == block; });
  for (size_t p = 0; p < leaves_.size(); ++p) {
    if (model_.shape().parameters[p].block != block) continue;
    weights_[p].reset();
    leaves_[p].reset();
  }
  blocks_[block + 1] = {};
}

void UnitStore::MakeBlock(int block, std::vector<int> groups) {
  WorkingBlock& working = blocks_.emplace_back();
  working.block = block;
  if (groups.empty()) return;
  working.groups = std::move(groups);
  std::vector<const UnitGroup*> members;
  bool whole = true;
  for (int g : working.groups) {
    members.push_back(&groups_[g]);
    whole &= groups_[g].Holds(rank_);
  }
  working.layout = LayOutBlock(model_.shape(), members);
  working.transient = options_.sharded || (options_.streamed && !whole);
  working.memory = at::zeros({working.layout.elements}, floats());
  MakeViews(working);
  for (size_t i = 0; i < working.groups.size(); ++i) {
    if (!members[i]->Holds(rank_)) continue;
    GroupState state;
    state.group = working.groups[i];
    state.pieces = working.layout.pieces[i];
    MakeState(std::move(state), working);
  }
  if (working.transient) Free(block);
}

void UnitStore::MakeViews(const WorkingBlock& working) {
  for (const WorkingParameter& entry : working.layout.parameters) {
    const plan::Parameter& parameter = model_.shape().parameters[entry.parameter];
    int64_t row = 1;
    for (int d = 0; d < static_cast<int>(parameter.dims.size()); ++d) {
      if (d != entry.dim) row *= parameter.dims[d];
    }
    // The version counter of its own lets working memory be filled again between forward and backward.
    const at::Tensor flat = working.memory.variable_data().narrow(0, entry.home, entry.rows * row);
    int64_t held = 0;
    for (size_t i = 0; i < working.groups.size(); ++i) {
      if (!groups_[working.groups[i]].Holds(rank_)) continue;
      for (const GroupPiece& piece : working.layout.pieces[i])
        held += piece.parameter == entry.parameter ? piece.rows : 0;
    }
    at::Tensor weight = FromRows(parameter, entry.dim, flat).detach();
    if (held > 0 && held == entry.rows) {
      weight.set_requires_grad(true);
      leaves_[entry.parameter] = weight;
    } else if (held > 0) {
      leaves_[entry.parameter] =
          FromRows(parameter, entry.dim, flat.narrow(0, 0, held * row)).detach().set_requires_grad(true);
    }
    weights_[entry.parameter] = weight;
  }
}

void UnitStore::MakeState(GroupState state, const WorkingBlock& working) {
  const UnitGroup& group = groups_[state.group];
  state.end = group.elements;
  int64_t size = group.elements;
  if (options_.sharded) {
    const int64_t k = static_cast<int64_t>(group.holders.size());
    const int64_t position =
        std::lower_bound(group.holders.begin(), group.holders.end(), rank_) - group.holders.begin();
    size = (group.elements + k - 1) / k;
    state.begin = std::min(group.elements, position * size);
    state.end = std::min(group.elements, (position + 1) * size);
  }
  const bool alone = working.groups.size() == 1;
  if (working.transient) {
    state.parameters = at::zeros({size}, floats());
  } else if (alone) {
    state.parameters = working.memory;
  }
  for (size_t i = 0; i < options_.moments.size(); ++i) state.moments.push_back(at::zeros({size}, floats()));

  const auto add = [&](const at::Tensor& parameters, int64_t begin, int64_t end, bool decay) {
    if (begin >= end) return;
    StateSpan span{parameters, {}, {}, decay, begin};
    for (const at::Tensor& moment : state.moments) span.moments.push_back(moment.slice(0, begin, end));
    state.spans.push_back(std::move(span));
  };
  if (state.parameters.defined()) {
    const int64_t decayed = std::clamp(group.decayed, state.begin, state.end) - state.begin;
    add(state.parameters.slice(0, 0, decayed), 0, decayed, true);
    add(state.parameters.slice(0, decayed, state.end - state.begin), decayed, state.end - state.begin, false);
  } else {
    for (const GroupPiece& piece : state.pieces) {
      add(working.memory.narrow(0, piece.home, piece.elements), piece.offset, piece.offset + piece.elements,
          piece.decay);
    }
  }
  held_.push_back(std::move(state));
}

void UnitStore::Initialize(uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (int p = 0; p < static_cast<int>(leaves_.size()); ++p) {
    if (!leaves_[p].defined()) continue;
    const plan::Parameter& parameter = model_.shape().parameters[p];
    const WorkingBlock& working = *Working(parameter.block);
    if (options_.device.is_cpu() && !working.transient && leaves_[p].is_contiguous() &&
        leaves_[p].numel() == parameter.elements()) {
      const bool in_order = std::all_of(working.groups.begin(), working.groups.end(), [&](int g) {
        const auto& slots = groups_[g].slots;
        return working.groups.size() == 1 ||
               std::all_of(slots.begin(), slots.end(), [&](const GroupSlot& slot) {
                 return slot.slice.parameter != p || slot.slice.whole;
               });
      });
      if (in_order) {
        at::Tensor view = leaves_[p].detach();
        model_.Initialize(p, seed, view);
        continue;
      }
    }
    at::Tensor value = at::empty(parameter.dims, at::kFloat);
    model_.Initialize(p, seed, value);
    SetParameter(p, value);
  }
}

void UnitStore::SetParameter(int parameter, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  for (GroupState& state : held_) {
    for (const GroupSlot& slot : groups_[state.group].slots) {
      if (slot.slice.parameter != parameter) continue;
      const at::Tensor rows = ToRows(slot.slice.dim, value);
      SetFlat(state, 0, slot.offset, rows.narrow(0, slot.slice.begin, slot.slice.length).reshape({-1}));
    }
  }
}

void UnitStore::SetFlat(GroupState& state, int kind, int64_t offset, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  const at::Tensor& kept = kind == 0 ? state.parameters : state.moments[kind - 1];
  const int64_t end = offset + value.numel();
  if (kept.defined()) {
    const int64_t low = std::max(offset, state.begin), high = std::min(end, state.end);
    if (low >= high) return;
    kept.slice(0, low - state.begin, high - state.begin).copy_(value.slice(0, low - offset, high - offset));
    return;
  }
  const WorkingBlock& working = *Working(groups_[state.group].block);
  for (const GroupPiece& piece : state.pieces) {
    const int64_t low = std::max(offset, piece.offset), high = std::min(end, piece.offset + piece.elements);
    if (low >= high) continue;
    working.memory.narrow(0, piece.home + low - piece.offset, high - low)
        .copy_(value.slice(0, low - offset, high - offset));
  }
}

void UnitStore::TieToLeaves(int block, Weights& weights) const {
  const WorkingBlock& working = blocks_[block + 1];
  for (const WorkingParameter& entry : working.layout.parameters) {
    const at::Tensor& leaf = leaves_[entry.parameter];
    const at::Tensor& whole = weights_[entry.parameter];
    if (!leaf.defined() || leaf.numel() == whole.numel()) continue;
    weights[entry.parameter] = TrainLeadingRows::apply(leaf, whole, static_cast<int64_t>(entry.dim));
  }
}

const GroupState* UnitStore::Find(int group) const {
  const auto it = std::lower_bound(held_.begin(), held_.end(), group,
                                   [](const GroupState& state, int wanted) { return state.group < wanted; });
  return it != held_.end() && it->group == group ? &*it : nullptr;
}

const WorkingBlock* UnitStore::Working(int block) const {
  const WorkingBlock& working = blocks_[block + 1];
  return working.groups.empty() ? nullptr : &working;
}

at::Tensor UnitStore::FlatParameters(const GroupState& state) const {
  if (state.parameters.defined()) return state.parameters;
  const at::Tensor flat = at::empty({groups_[state.group].elements}, floats());
  const WorkingBlock& working = *Working(groups_[state.group].block);
  for (const GroupPiece& piece : state.pieces) {
    flat.narrow(0, piece.offset, piece.elements).copy_(working.memory.narrow(0, piece.home, piece.elements));
  }
  return flat;
}

at::Tensor UnitStore::ParameterRange(const GroupState& state, int64_t low, int64_t high) const {
  if (state.parameters.defined()) return state.parameters.slice(0, low - state.begin, high - state.begin);
  const auto piece = std::find_if(state.pieces.begin(), state.pieces.end(), [&](const GroupPiece& p) {
    return p.offset <= low && high <= p.offset + p.elements;
  });
  TESSERA_CHECK(piece != state.pieces.end());
  const WorkingBlock& working = *Working(groups_[state.group].block);
  return working.memory.narrow(0, piece->home + low - piece->offset, high - low);
}

int64_t UnitStore::FlatElements(const GroupState& state) const {
  return state.parameters.defined() ? state.parameters.numel() : groups_[state.group].elements;
}

void UnitStore::SetGradients(GroupState& state, at::Tensor gradients) {
  state.gradients = std::move(gradients);
  for (StateSpan& span : state.spans) {
    span.gradients = state.gradients.defined()
                         ? state.gradients.narrow(0, span.begin, span.parameters.numel())
                         : at::Tensor();
  }
}

void UnitStore::Allocate(int block) {
  const WorkingBlock& working = blocks_[block + 1];
  TESSERA_CHECK(working.transient);
  Resize(working.memory, static_cast<size_t>(working.layout.elements) * sizeof(float));
}

void UnitStore::Free(int block) {
  const WorkingBlock& working = blocks_[block + 1];
  TESSERA_CHECK(working.transient);
  Resize(working.memory, 0);
}

}  // namespace tessera::worker

#include "worker/parallel/weight_fetcher.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status_macros.h"

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<WeightFetcher>> WeightFetcher::Create(UnitStore* store, World* world) {
  auto fetcher = std::unique_ptr<WeightFetcher>(new WeightFetcher(store, world));
  const StoreOptions& options = store->options();
  fetcher->everyone_ = &world->all();
  if (options.backward_masking && (options.streamed || options.sharded)) {
    std::vector<int> ranks(world->all().size());
    std::iota(ranks.begin(), ranks.end(), 0);
    TESSERA_ASSIGN_OR_RETURN(fetcher->everyone_, world->Group(ranks, Channel::kWeights));
  }
  fetcher->holders_.resize(store->groups().size(), nullptr);
  for (const GroupState& state : store->held()) {
    if (!options.sharded) continue;
    const UnitGroup& group = store->groups()[state.group];
    TESSERA_ASSIGN_OR_RETURN(fetcher->holders_[state.group], world->Group(group.holders, Channel::kWeights));
  }
  fetcher->blocks_.resize(store->model().shape().blocks.size() + 1);
  for (const UnitGroup& group : store->groups()) {
    const WorkingBlock* working = store->Working(group.block);
    fetcher->blocks_[group.block + 1].moves |=
        working != nullptr && (working->transient || fetcher->Sends(group));
  }
  return fetcher;
}

bool WeightFetcher::Moves(int block) const { return blocks_[block + 1].moves; }

bool WeightFetcher::Sends(const UnitGroup& group) const {
  const StoreOptions& options = store_->options();
  return options.backward_masking && (options.streamed || options.sharded) &&
         static_cast<int>(group.holders.size()) < world_->all().size();
}

// Where a group's flat parameters come together: the working memory itself if it is the group's alone.
at::Tensor WeightFetcher::Destination(int group) const {
  const GroupState* held = store_->Find(group);
  const int64_t elements = store_->groups()[group].elements;
  int64_t size = elements;
  if (held != nullptr && holders_[group] != nullptr)
    size = held->parameters.numel() * holders_[group]->size();
  const WorkingBlock* working = store_->Working(store_->groups()[group].block);
  if (working != nullptr && working->transient && working->groups.size() == 1 && size == elements) {
    return working->memory;
  }
  return at::empty({size}, store_->floats());
}

void WeightFetcher::Prefetch(int block) {
  const at::NoGradGuard no_grad;
  Block& entry = blocks_[block + 1];
  if (!entry.moves || entry.started || entry.whole) return;
  entry.started = true;
  const WorkingBlock& working = *store_->Working(block);
  if (working.transient) store_->Allocate(block);
  std::vector<int> groups = working.groups;
  std::sort(groups.begin(), groups.end());  // the same order on all ranks
  for (int g : groups) {
    const UnitGroup& group = store_->groups()[g];
    const GroupState* held = store_->Find(g);
    Part part;
    part.group = g;
    if (held != nullptr && holders_[g] != nullptr) {
      part.flat = Destination(g);
      part.work = holders_[g]->StartAllGather(held->parameters, part.flat);
    } else if (held != nullptr) {
      part.flat = store_->FlatParameters(*held);
    } else {
      part.flat = Destination(g);
    }
    if (Sends(group) && !store_->options().sharded) {
      part.work = everyone_->StartBroadcast(part.flat, group.owner());
    }
    entry.parts.push_back(std::move(part));
  }
}

absl::Status WeightFetcher::Fetch(int block) {
  const at::NoGradGuard no_grad;
  Block& entry = blocks_[block + 1];
  if (!entry.moves || entry.whole) return absl::OkStatus();
  Prefetch(block);
  const WorkingBlock& working = *store_->Working(block);
  absl::Status result;
  for (Part& part : entry.parts) {
    // Every work is waited for, also after a failure: the others still write to our tensors.
    if (part.work != nullptr) result.Update(part.work->Wait());
    const UnitGroup& group = store_->groups()[part.group];
    if (result.ok() && Sends(group) && store_->options().sharded) {
      result.Update(everyone_->Broadcast(part.flat.narrow(0, 0, group.elements), group.owner()));
    }
    if (result.ok() && working.transient) CopyIn(working, part.group, part.flat);
  }
  entry.parts.clear();
  entry.started = false;
  entry.whole = result.ok() && working.transient;
  return result;
}

void WeightFetcher::CopyIn(const WorkingBlock& working, int group, const at::Tensor& flat) {
  if (flat.data_ptr() == working.memory.data_ptr()) return;
  const auto position =
      std::find(working.groups.begin(), working.groups.end(), group) - working.groups.begin();
  for (const GroupPiece& piece : working.layout.pieces[position]) {
    working.memory.narrow(0, piece.home, piece.elements).copy_(flat.narrow(0, piece.offset, piece.elements));
  }
}

void WeightFetcher::Release(int block) {
  Block& entry = blocks_[block + 1];
  if (!entry.whole) return;
  store_->Free(block);
  entry.whole = false;
}

void WeightFetcher::ReleaseAll() {
  for (int block = plan::kNoBlock; block + 1 < static_cast<int>(blocks_.size()); ++block) {
    if (blocks_[block + 1].started) Fetch(block).IgnoreError();
    Release(block);
  }
}

absl::StatusOr<at::Tensor> WeightFetcher::Gather(int g, bool to_all) {
  const at::NoGradGuard no_grad;
  const UnitGroup& group = store_->groups()[g];
  const GroupState* held = store_->Find(g);
  at::Tensor flat;
  if (held != nullptr && holders_[g] != nullptr) {
    flat = at::empty({held->parameters.numel() * holders_[g]->size()}, store_->floats());
    TESSERA_RETURN_IF_ERROR(holders_[g]->AllGather(held->parameters, flat));
    flat = flat.narrow(0, 0, group.elements);
  } else if (held != nullptr) {
    flat = store_->FlatParameters(*held);
  } else if (to_all) {
    flat = at::empty({group.elements}, store_->floats());
  }
  if (to_all && static_cast<int>(group.holders.size()) < world_->all().size()) {
    TESSERA_RETURN_IF_ERROR(everyone_->Broadcast(flat, group.owner()));
  }
  return flat;
}

absl::Status WeightFetcher::Publish() {
  const StoreOptions& options = store_->options();
  if (!options.backward_masking || options.streamed || options.sharded) return absl::OkStatus();
  for (int g = 0; g < static_cast<int>(store_->groups().size()); ++g) {
    const UnitGroup& group = store_->groups()[g];
    if (static_cast<int>(group.holders.size()) == world_->all().size()) continue;
    TESSERA_ASSIGN_OR_RETURN(const at::Tensor flat, Gather(g, /*to_all=*/true));
    if (store_->Find(g) == nullptr) CopyIn(*store_->Working(group.block), g, flat);
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker

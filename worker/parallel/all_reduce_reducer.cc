#include "worker/parallel/all_reduce_reducer.h"

#include <torch/types.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/status_macros.h"

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<GradientReducer>> AllReduceReducer::Create(UnitStore* store, World* world,
                                                                          const ReducerOptions& options) {
  auto reducer = std::unique_ptr<AllReduceReducer>(new AllReduceReducer(store, world, options));
  reducer->parts_.resize(store->weights().size());
  for (int position = 0; position < static_cast<int>(store->held().size()); ++position) {
    const UnitGroup& group = store->groups()[store->held()[position].group];
    TESSERA_ASSIGN_OR_RETURN(Communicator * communicator, world->Group(group.holders));
    reducer->groups_.push_back(communicator);
    reducer->CutIntoBuckets(position);
  }
  reducer->OrderBuckets();
  for (std::vector<Part>& parts : reducer->parts_) {
    for (Part& part : parts) part.bucket = reducer->BucketAt(part.position, part.offset);
  }
  return reducer;
}

void AllReduceReducer::CutIntoBuckets(int position) {
  const GroupState& state = store_->held()[position];
  int64_t end = store_->groups()[state.group].elements;
  const auto fresh = [&] {
    Bucket bucket;
    bucket.position = position;
    bucket.lowest_parameter = static_cast<int>(parts_.size());
    return bucket;
  };
  Bucket bucket = fresh();
  for (auto piece = state.pieces.rbegin(); piece != state.pieces.rend(); ++piece) {
    bucket.offset = piece->offset;
    bucket.elements = end - piece->offset;
    bucket.lowest_parameter = std::min(bucket.lowest_parameter, piece->parameter);
    ++bucket.parts;
    Part part;
    part.position = position;
    part.offset = piece->offset;
    part.row = piece->row;
    part.rows = piece->rows;
    part.elements = piece->elements;
    parts_[piece->parameter].push_back(std::move(part));
    if (bucket.elements * 4 >= options_.bucket_bytes || std::next(piece) == state.pieces.rend()) {
      end = bucket.offset;
      buckets_.push_back(std::move(bucket));
      bucket = fresh();
    }
  }
}

void AllReduceReducer::OnBegin() {
  BucketedReducer::OnBegin();
  for (std::vector<Part>& parts : parts_) {
    for (Part& part : parts) {
      if (first_) part.filled = false;
      part.seen = false;
    }
  }
}

void AllReduceReducer::Accept(int parameter, const at::Tensor& rows) {
  for (Part& part : parts_[parameter]) {
    const at::Tensor own = rows.narrow(0, part.row, part.rows);
    const at::Tensor slot = SlotOf(part).view(own.sizes());
    if (part.filled) {
      slot.add_(own);
    } else {
      slot.copy_(own);
    }
    part.filled = true;
    if (part.seen) continue;  // a graph that accumulates twice in one backward
    part.seen = true;
    PartCame(part.bucket);
  }
  if (last_) StartReady(false);
}

void AllReduceReducer::MakeGradients(GroupState& state) {
  if (state.gradients.defined()) return;
  store_->SetGradients(state, at::empty({store_->FlatElements(state)}, store_->floats()));
  // The first gradient of a backward pass is the head's or the last norm's: the last block comes next.
  if (store_->groups()[state.group].block == plan::kNoBlock)
    MakeGradientsBefore(std::numeric_limits<int>::max());
}

void AllReduceReducer::MakeGradientsBefore(int block) {
  int next = plan::kNoBlock;
  for (const GroupState& state : store_->held()) {
    const int of = store_->groups()[state.group].block;
    if (of < block) next = std::max(next, of);
  }
  for (GroupState& state : store_->held()) {
    if (next != plan::kNoBlock && store_->groups()[state.group].block == next) MakeGradients(state);
  }
}

void AllReduceReducer::LeaveBlock(int block) {
  BucketedReducer::LeaveBlock(block);
  const at::NoGradGuard no_grad;
  MakeGradientsBefore(block);
}

at::Tensor AllReduceReducer::SlotOf(const Part& part) {
  GroupState& state = store_->held()[part.position];
  MakeGradients(state);
  return state.gradients.narrow(0, part.offset, part.elements);
}

at::Tensor AllReduceReducer::MemoryOf(const Bucket& bucket) {
  return store_->held()[bucket.position].gradients.narrow(0, bucket.offset, bucket.elements);
}

void AllReduceReducer::FillIn(int bucket) {
  for (std::vector<Part>& parts : parts_) {
    for (Part& part : parts) {
      if (part.bucket == bucket && !part.filled) SlotOf(part).zero_();
    }
  }
}

}  // namespace tessera::worker

#include "worker/parallel/all_reduce_reducer.h"

#include <torch/types.h>

#include <algorithm>
#include <iterator>
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
  // Backward produces the parameters that forward read last first. A bucket is complete with
  // its earliest parameter, so the order of starting follows from the shape alone.
  std::stable_sort(reducer->buckets_.begin(), reducer->buckets_.end(),
                   [](const Bucket& a, const Bucket& b) { return a.lowest_parameter > b.lowest_parameter; });
  for (int b = 0; b < static_cast<int>(reducer->buckets_.size()); ++b) {
    const Bucket& bucket = reducer->buckets_[b];
    for (std::vector<Part>& parts : reducer->parts_) {
      for (Part& part : parts) {
        if (part.position == bucket.position && part.offset >= bucket.offset &&
            part.offset < bucket.offset + bucket.elements) {
          part.bucket = b;
        }
      }
    }
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
    part.slot = state.gradients.narrow(0, piece->offset, piece->elements);
    parts_[piece->parameter].push_back(std::move(part));
    if (bucket.elements * 4 >= options_.bucket_bytes || std::next(piece) == state.pieces.rend()) {
      end = bucket.offset;
      buckets_.push_back(std::move(bucket));
      bucket = fresh();
    }
  }
}

void AllReduceReducer::OnBegin() {
  if (first_) next_ = 0;
  for (std::vector<Part>& parts : parts_) {
    for (Part& part : parts) {
      if (first_) part.filled = false;
      part.seen = false;
    }
  }
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parts;
}

void AllReduceReducer::Accept(int parameter, const at::Tensor& rows) {
  for (Part& part : parts_[parameter]) {
    const at::Tensor own = rows.narrow(0, part.row, part.rows);
    const at::Tensor slot = part.slot.view(own.sizes());
    if (part.filled) {
      slot.add_(own);
    } else {
      slot.copy_(own);
    }
    part.filled = true;
    if (part.seen) continue;  // a graph that accumulates twice in one backward
    part.seen = true;
    --buckets_[part.bucket].missing;
  }
  if (last_) StartReady(false);
}

void AllReduceReducer::LeaveBlock(int block) {
  if (!last_) return;
  for (Bucket& bucket : buckets_) {
    const int of = store_->groups()[store_->held()[bucket.position].group].block;
    if (of == block) bucket.missing = 0;  // what has not come is zero, see Start
  }
  StartReady(false);
}

void AllReduceReducer::Start(Bucket& bucket) {
  const GroupState& state = store_->held()[bucket.position];
  for (std::vector<Part>& parts : parts_) {
    for (Part& part : parts) {
      if (&buckets_[part.bucket] == &bucket && !part.filled) part.slot.zero_();
    }
  }
  if (groups_[bucket.position]->size() == 1) return;
  at::Tensor sum = state.gradients.narrow(0, bucket.offset, bucket.elements);
  if (options_.wire == WireType::kBFloat16) sum = bucket.wire = sum.to(at::kBFloat16);
  bucket.work = groups_[bucket.position]->AllReduceSum(sum);
}

// Starts buckets in their fixed order, as far as they are complete (all: regardless).
void AllReduceReducer::StartReady(bool all) {
  for (; next_ < buckets_.size() && (all || buckets_[next_].missing == 0); ++next_) Start(buckets_[next_]);
}

absl::Status AllReduceReducer::EndMicroStep() {
  if (!last_) return absl::OkStatus();
  const at::NoGradGuard no_grad;
  StartReady(true);
  absl::Status result;
  for (Bucket& bucket : buckets_) {
    if (bucket.work == nullptr) continue;
    // Every work is waited for, also after a failure: the others still write to our tensors.
    result.Update(bucket.work->Wait());
    bucket.work.reset();
    if (!bucket.wire.defined()) continue;
    store_->held()[bucket.position].gradients.narrow(0, bucket.offset, bucket.elements).copy_(bucket.wire);
    bucket.wire.reset();
  }
  result.Update(WaitForTokens());
  return result;
}

}  // namespace tessera::worker

#include "worker/parallel/bucketed_reducer.h"

#include <torch/types.h>

#include <algorithm>

#include "base/check.h"

namespace tessera::worker {

// Backward produces the parameters that forward read last first. A bucket is complete with its earliest
// parameter, so the order of starting follows from the shape alone.
void BucketedReducer::OrderBuckets() {
  std::stable_sort(buckets_.begin(), buckets_.end(),
                   [](const Bucket& a, const Bucket& b) { return a.lowest_parameter > b.lowest_parameter; });
}

int BucketedReducer::BucketAt(int position, int64_t offset) const {
  const auto found = std::find_if(buckets_.begin(), buckets_.end(), [&](const Bucket& bucket) {
    return bucket.position == position && offset >= bucket.offset && offset < bucket.offset + bucket.elements;
  });
  TESSERA_CHECK(found != buckets_.end());
  return static_cast<int>(found - buckets_.begin());
}

void BucketedReducer::OnBegin() {
  if (first_) next_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parts;
}

void BucketedReducer::LeaveBlock(int block) {
  if (!last_) return;
  for (Bucket& bucket : buckets_) {
    const int of = store_->groups()[store_->held()[bucket.position].group].block;
    if (of == block) bucket.missing = 0;  // what has not come is filled in
  }
  StartReady(false);
}

void BucketedReducer::StartReady(bool all) {
  for (; next_ < buckets_.size() && (all || buckets_[next_].missing == 0); ++next_) {
    Bucket& bucket = buckets_[next_];
    FillIn(static_cast<int>(next_));
    if (groups_[bucket.position]->size() == 1) continue;
    at::Tensor sum = MemoryOf(bucket);
    if (options_.wire == WireType::kBFloat16) sum = bucket.wire = sum.to(at::kBFloat16);
    StartSum(bucket, sum);
  }
}

void BucketedReducer::StartSum(Bucket& bucket, const at::Tensor& sum) {
  bucket.works.push_back(groups_[bucket.position]->AllReduceSum(sum));
}

absl::Status BucketedReducer::EndMicroStep() {
  if (!last_) return absl::OkStatus();
  const at::NoGradGuard no_grad;
  StartReady(true);
  absl::Status result;
  for (Bucket& bucket : buckets_) {
    // Every work is waited for, also after a failure: the others still write to our memory.
    for (const auto& work : bucket.works) result.Update(work->Wait());
    bucket.works.clear();
    if (!bucket.wire.defined()) continue;
    MemoryOf(bucket).copy_(bucket.wire);
    bucket.wire.reset();
  }
  result.Update(WaitForTokens());
  return result.ok() ? Complete() : result;
}

}  // namespace tessera::worker

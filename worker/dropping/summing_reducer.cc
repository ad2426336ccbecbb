#include "worker/dropping/summing_reducer.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"

namespace tessera::worker {
namespace {

// What its parts send is not a range of the ring.
template <typename Bucket>
bool IsGathered(const Bucket& bucket) {
  return bucket.elements == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SummingReducer>> SummingReducer::Create(UnitStore* store, World* world,
                                                                       const ReducerOptions& options,
                                                                       std::unique_ptr<KeptPieces> pieces) {
  auto reducer =
      std::unique_ptr<SummingReducer>(new SummingReducer(store, world, options, std::move(pieces)));
  reducer->LayOut();
  TESSERA_RETURN_IF_ERROR(reducer->ConnectLevels());
  reducer->Install();
  return reducer;
}

SummingReducer::~SummingReducer() {
  for (Bucket& bucket : buckets_) {
    for (const auto& work : bucket.works) work->Wait().IgnoreError();
  }
}

void SummingReducer::LayOut() {
  const std::vector<KeptPiece>& pieces = pieces_->pieces();
  size_t piece = 0;
  for (int position = 0; position < static_cast<int>(store_->held().size()); ++position) {
    groups_.push_back(&pieces_->holders(position));
    const size_t first = piece;
    while (piece < pieces.size() && pieces[piece].position == position) ++piece;
    CutIntoBuckets(position, first, piece);
  }
  rings_.resize(groups_.size());
  OrderBuckets();
  for (const KeptPiece& of : pieces) {
    const auto gathered = std::find_if(buckets_.begin(), buckets_.end(), [&](const Bucket& bucket) {
      return bucket.position == of.position && IsGathered(bucket);
    });
    bucket_of_.push_back(of.alone ? static_cast<int>(gathered - buckets_.begin())
                                  : BucketAt(of.position, of.ring));
  }
  seen_.assign(pieces.size(), false);
}

void SummingReducer::CutIntoBuckets(int position, size_t first_piece, size_t last_piece) {
  Bucket bucket, gathered;
  gathered.position = position;
  const auto close = [&] {
    if (bucket.parts > 0) buckets_.push_back(std::exchange(bucket, Bucket()));
  };
  for (size_t p = last_piece; p-- > first_piece;) {
    const KeptPiece& piece = pieces_->pieces()[p];
    if (piece.alone) {
      gathered.lowest_parameter = gathered.parts == 0
                                      ? piece.place.parameter
                                      : std::min(gathered.lowest_parameter, piece.place.parameter);
      ++gathered.parts;
      close();
      continue;
    }
    if (bucket.parts == 0) bucket.lowest_parameter = piece.place.parameter;
    bucket.position = position;
    bucket.offset = piece.ring;
    bucket.elements += piece.kept;
    bucket.lowest_parameter = std::min(bucket.lowest_parameter, piece.place.parameter);
    ++bucket.parts;
    if (bucket.elements * 4 >= options_.bucket_bytes) close();
  }
  close();
  if (gathered.parts > 0) buckets_.push_back(std::move(gathered));
}

// All ranks go through all groups in the plan's order, so those that share several communicators ask for
// them in the same order.
absl::Status SummingReducer::ConnectLevels() {
  const std::vector<double>& shares = pieces_->options().worker_shares;
  levels_.resize(store_->held().size());
  for (size_t position = 0; position < store_->held().size() && !shares.empty(); ++position) {
    const std::vector<int>& holders = store_->groups()[store_->held()[position].group].holders;
    std::vector<double> steps;
    for (int rank : holders) steps.push_back(shares[rank]);
    std::sort(steps.begin(), steps.end());
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    double begin = 0;
    for (size_t s = 0; s < steps.size() && steps.size() > 1; ++s) {
      Level level;
      level.begin = std::exchange(begin, steps[s] / steps.back());
      level.end = begin;
      std::vector<int> others;
      for (int rank : holders) (shares[rank] >= steps[s] ? level.contributors : others).push_back(rank);
      const int root = *std::max_element(level.contributors.begin(), level.contributors.end(),
                                         [&](int a, int b) { return shares[a] < shares[b]; });
      level.mine = shares[store_->rank()] >= steps[s];
      if (level.mine && level.contributors.size() > 1) {
        TESSERA_ASSIGN_OR_RETURN(level.sum, world_->Group(level.contributors));
      }
      if (!others.empty() && (!level.mine || root == store_->rank())) {
        others.insert(std::upper_bound(others.begin(), others.end(), root), root);
        level.root = static_cast<int>(std::find(others.begin(), others.end(), root) - others.begin());
        TESSERA_ASSIGN_OR_RETURN(level.send, world_->Group(others));
      }
      levels_[position].push_back(std::move(level));
    }
  }
  return absl::OkStatus();
}

// Whose part begins where moves by the golden section of the bucket each step, so that all elements get the
// contributions of all holders equally often.
std::vector<SummingReducer::Range> SummingReducer::RangesOf(const Bucket& bucket, const Level& level) const {
  const int64_t n = bucket.elements;
  const auto place = [n](double share) {
    return std::clamp<int64_t>(std::llround(share * static_cast<double>(n)), 0, n);
  };
  const uint64_t turn = static_cast<uint64_t>(pieces_->step()) * 0x9E3779B97F4A7C15ULL >> 32;
  const auto start = static_cast<int64_t>(turn * static_cast<uint64_t>(n) >> 32);
  const int64_t begin = (place(level.begin) + start) % n, length = place(level.end) - place(level.begin);
  std::vector<Range> ranges;
  const int64_t first = std::min(length, n - begin);
  if (first > 0) ranges.push_back({begin, first});
  if (length > first) ranges.push_back({0, length - first});
  return ranges;
}

at::Tensor& SummingReducer::RingAt(int position) {
  at::Tensor& ring = rings_[static_cast<size_t>(position)];
  if (!ring.defined()) ring = at::zeros({pieces_->section_elements(position)}, store_->floats());
  return ring;
}

void SummingReducer::OnBegin() {
  BucketedReducer::OnBegin();
  absl::Status begun = pieces_->Begin(first_);
  if (first_) status_ = std::move(begun);
  if (first_) exchanged_ = absl::OkStatus();
  for (KeptPiece& piece : pieces_->pieces()) {
    if (first_) piece.filled = false;
  }
  seen_.assign(seen_.size(), false);
}

void SummingReducer::Accept(int parameter, const at::Tensor& rows) {
  if (!status_.ok()) return;  // EndMicroStep tells
  pieces_->CutRows(parameter, rows, [this](KeptPiece& piece) {
    const auto index = static_cast<size_t>(&piece - pieces_->pieces().data());
    if (!seen_[index]) PartCame(bucket_of_[index]);  // else a graph that accumulates twice in one backward
    seen_[index] = true;
    return RingOf(piece);
  });
  if (last_) StartReady(false);
}

void SummingReducer::LeaveBlock(int block) {
  if (status_.ok()) BucketedReducer::LeaveBlock(block);
}

absl::Status SummingReducer::EndMicroStep() {
  TESSERA_RETURN_IF_ERROR(status_);
  absl::Status ended = BucketedReducer::EndMicroStep();
  FinishExchange();  // also after a failure: peers still write to its memory
  ended.Update(exchanged_);
  return ended;
}

at::Tensor SummingReducer::MemoryOf(const Bucket& bucket) {
  return RingAt(bucket.position).narrow(0, bucket.offset, bucket.elements);
}

void SummingReducer::FillIn(int bucket) {
  for (size_t p = 0; p < bucket_of_.size(); ++p) {
    KeptPiece& piece = pieces_->pieces()[p];
    if (bucket_of_[p] == bucket && !piece.filled) pieces_->Cut(piece, nullptr, RingOf(piece));
  }
  for (const Level& level : levels_[buckets_[bucket].position]) {
    if (level.mine) continue;
    for (const Range& range : RangesOf(buckets_[bucket], level)) TakeBack(buckets_[bucket], range);
  }
}

// What this rank keeps and does not contribute.
void SummingReducer::TakeBack(const Bucket& bucket, const Range& range) {
  if (!pieces_->residual().defined()) return;
  for (size_t p = 0; p < bucket_of_.size(); ++p) {
    const KeptPiece& piece = pieces_->pieces()[p];
    if (piece.position != bucket.position) continue;
    const int64_t at = bucket.offset + range.begin - piece.ring;
    const int64_t begin = std::max<int64_t>(0, at), end = std::min(piece.kept, at + range.elements);
    if (begin < end) pieces_->Return(piece, begin, end, RingOf(piece));
  }
}

void SummingReducer::StartSum(Bucket& bucket, const at::Tensor& sum) {
  if (IsGathered(bucket)) return StartExchange(bucket);
  if (levels_[bucket.position].empty()) return BucketedReducer::StartSum(bucket, sum);
  for (const Level& level : levels_[bucket.position]) {
    if (level.sum == nullptr) continue;
    for (const Range& range : RangesOf(bucket, level)) {
      bucket.works.push_back(level.sum->AllReduceSum(sum.narrow(0, range.begin, range.elements)));
    }
  }
}

void SummingReducer::StartExchange(const Bucket& bucket) {
  FinishExchange();
  std::vector<PickExchange::Part> parts;
  for (KeptPiece& piece : pieces_->pieces()) {
    if (piece.position == bucket.position && piece.alone) parts.push_back({&piece, RingOf(piece)});
  }
  exchange_ = PickExchange::Start(pieces_.get(), groups_[bucket.position], options_.wire, std::move(parts));
}

void SummingReducer::FinishExchange() {
  if (exchange_ != nullptr) exchanged_.Update(exchange_->Finish());
  exchange_.reset();
}

// Sends each segment's sum to those that did not contribute to it, and makes up for their tokens, as all sums
// of a group are divided by the same number.
absl::Status SummingReducer::Complete() {
  struct Sent {
    at::Tensor memory, wire;
    std::unique_ptr<Work> work;
  };
  std::vector<Sent> sent;
  for (const Bucket& bucket : buckets_) {
    for (const Level& level : levels_[bucket.position]) {
      if (level.send == nullptr) continue;
      for (const Range& range : RangesOf(bucket, level)) {
        Sent one;
        one.memory = MemoryOf(bucket).narrow(0, range.begin, range.elements);
        one.wire = options_.wire == WireType::kBFloat16 ? one.memory.to(at::kBFloat16) : one.memory;
        one.work = level.send->StartBroadcast(one.wire, level.root);
        sent.push_back(std::move(one));
      }
    }
  }
  absl::Status result;
  for (Sent& one : sent) {
    result.Update(one.work->Wait());
    if (!one.wire.is_same(one.memory)) one.memory.copy_(one.wire);
  }
  for (const Bucket& bucket : buckets_) {
    for (const Level& level : levels_[bucket.position]) {
      const double scale = divisor(bucket.position) / TokensOf(level.contributors);
      for (const Range& range : RangesOf(bucket, level)) {
        MemoryOf(bucket).narrow(0, range.begin, range.elements).mul_(scale);
      }
    }
  }
  return result;
}

at::Tensor SummingReducer::Sum(int position) const {
  const at::Tensor& ring = rings_[static_cast<size_t>(position)];
  return ring.defined() ? ring : at::empty({0}, store_->floats());  // of nothing kept
}

void SummingReducer::Visit(int position, const Visitor& visitor) {
  pieces_->Visit(position, Sum(position), visitor);
  rings_[static_cast<size_t>(position)].reset();
}

at::Tensor SummingReducer::SumOfPiece(int position, int piece) const {
  const KeptPiece* of = pieces_->Own(position, store_->held()[position].pieces[piece].parameter);
  return Sum(position).narrow(0, of->ring, of->selection.kept());
}

}  // namespace tessera::worker

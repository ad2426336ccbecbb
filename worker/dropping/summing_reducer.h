// Kept elements are summed over the holders by all-reduce, in buckets. Where workers contribute unequal
// shares, a bucket is cut into segments, of which each is summed among those that contribute it and sent to
// the others. What holders select each for itself is gathered with its indices (pick_exchange.h), all of a
// group at once, and of one group at a time, which bounds the memory.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "worker/dropping/kept_pieces.h"
#include "worker/dropping/pick_exchange.h"
#include "worker/parallel/bucketed_reducer.h"

namespace tessera::worker {

class SummingReducer final : public BucketedReducer {
 public:
  static absl::StatusOr<std::unique_ptr<SummingReducer>> Create(UnitStore* store, World* world,
                                                                const ReducerOptions& reducer,
                                                                std::unique_ptr<KeptPieces> pieces);
  ~SummingReducer() override;

  KeptPieces* pieces() { return pieces_.get(); }
  void LeaveBlock(int block) override;
  absl::Status EndMicroStep() override;
  at::Tensor Sum(int position) const override;
  at::Tensor SumOfPiece(int position, int piece) const override;
  void Visit(int position, const Visitor& visitor) override;
  uint32_t SelectionCheck() const override { return pieces_->SelectionCheck(); }
  // Where a run may be resumed it picks as the resumed one.
  void Refresh() override { pieces_->Refresh(); }
  double kept_ratio() const override { return pieces_->kept_ratio(); }

 protected:
  void Accept(int parameter, const at::Tensor& rows) override;
  void OnBegin() override;
  at::Tensor MemoryOf(const Bucket& bucket) override;
  void FillIn(int bucket) override;
  void StartSum(Bucket& bucket, const at::Tensor& sum) override;
  absl::Status Complete() override;

 private:
  // Of a group: those that contribute more than the ones before, and to which part of its elements.
  struct Level {
    double begin = 0, end = 1;      // of each bucket, in an order that turns from step to step
    std::vector<int> contributors;  // ranks, ascending
    bool mine = true;               // this rank is one of them
    Communicator* sum = nullptr;    // null: nothing to sum here
    Communicator* send = nullptr;   // to those that do not contribute; null: not there, or not here
    int root = 0;                   // within `send`
  };
  // A part of a bucket, both in elements of its memory.
  struct Range {
    int64_t begin = 0, elements = 0;
  };

  SummingReducer(UnitStore* store, World* world, const ReducerOptions& options,
                 std::unique_ptr<KeptPieces> pieces)
      : BucketedReducer(store, world, options), pieces_(std::move(pieces)) {}
  void LayOut();
  void CutIntoBuckets(int position, size_t first_piece, size_t last_piece);
  absl::Status ConnectLevels();
  std::vector<Range> RangesOf(const Bucket& bucket, const Level& level) const;
  // A group's part of the ring, which is there from the first of its gradients to the update.
  at::Tensor& RingAt(int position);
  float* RingOf(const KeptPiece& piece) { return RingAt(piece.position).data_ptr<float>() + piece.ring; }
  void TakeBack(const Bucket& bucket, const Range& range);
  void StartExchange(const Bucket& bucket);
  void FinishExchange();

  std::unique_ptr<KeptPieces> pieces_;
  std::vector<int> bucket_of_;              // by piece, like the next
  std::vector<bool> seen_;                  // in this micro-step
  std::vector<std::vector<Level>> levels_;  // by position
  std::vector<at::Tensor> rings_;           // by position
  absl::Status status_;                     // of selecting
  std::unique_ptr<PickExchange> exchange_;  // under way
  absl::Status exchanged_;                  // of those of this step
};

}  // namespace tessera::worker

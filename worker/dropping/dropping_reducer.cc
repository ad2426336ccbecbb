#include "worker/dropping/dropping_reducer.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "worker/dropping/summing_reducer.h"
#include "worker/parallel/scattering_reducer.h"

namespace tessera::worker {
namespace {

// Of a sharded store. Each section of a group has budgets of its own; the sections are of one size, the
// largest's, as they are scattered together.
class ShardedReducer final : public ScatteringReducer {
 public:
  ShardedReducer(UnitStore* store, World* world, const ReducerOptions& options,
                 std::unique_ptr<KeptPieces> pieces)
      : ScatteringReducer(store, world, options), pieces_(std::move(pieces)) {
    for (int position = 0; position < static_cast<int>(store->held().size()); ++position) {
      AddGroup(&pieces_->holders(position));
    }
    sums_.resize(store->held().size());
    Install();
  }

  void LeaveBlock(int block) override {
    if (status_.ok()) ScatteringReducer::LeaveBlock(block);
  }
  absl::Status EndMicroStep() override {
    TESSERA_RETURN_IF_ERROR(status_);
    return ScatteringReducer::EndMicroStep();
  }
  at::Tensor Sum(int position) const override { return sums_[static_cast<size_t>(position)]; }
  at::Tensor SumOfPiece(int position, int piece) const override {
    const KeptPiece* of = pieces_->Own(position, store_->held()[position].pieces[piece].parameter);
    return of == nullptr ? at::empty({0}, store_->floats()) : Sum(position).narrow(0, of->ring, of->kept);
  }
  void Visit(int position, const Visitor& visitor) override {
    pieces_->Visit(position, Sum(position), visitor);
    sums_[static_cast<size_t>(position)].reset();
  }
  uint32_t SelectionCheck() const override { return pieces_->SelectionCheck(); }
  void Refresh() override { pieces_->Refresh(); }
  double kept_ratio() const override { return pieces_->kept_ratio(); }
  KeptPieces* pieces() { return pieces_.get(); }

 protected:
  void OnBegin() override {
    ScatteringReducer::OnBegin();
    if (first_) sums_.assign(sums_.size(), at::Tensor());
    absl::Status begun = pieces_->Begin(first_);
    if (first_) status_ = std::move(begun);
    for (KeptPiece& piece : pieces_->pieces()) piece.filled = false;
  }
  void Accept(int parameter, const at::Tensor& rows) override {
    if (!status_.ok()) return;  // EndMicroStep tells
    pieces_->CutRows(parameter, rows, [this](KeptPiece& piece) { return RingOf(piece); });
  }
  int64_t SectionElements(int position) const override { return pieces_->section_elements(position); }
  void AddSum(int position, at::Tensor sum) override {
    at::Tensor& there = sums_[static_cast<size_t>(position)];
    there = there.defined() ? there.add_(sum) : sum.to(at::kFloat);
  }
  void FillIn(int position) override {
    if (!pieces_->residual().defined()) return;  // zeros are there
    for (KeptPiece& piece : pieces_->pieces()) {
      if (piece.position == position && !piece.filled) pieces_->Cut(piece, nullptr, RingOf(piece));
    }
  }

 private:
  float* RingOf(const KeptPiece& piece) {
    return Whole(piece.position).data_ptr<float>() +
           piece.section * pieces_->section_elements(piece.position) + piece.ring;
  }

  std::unique_ptr<KeptPieces> pieces_;
  std::vector<at::Tensor> sums_;  // by position, from the first micro-step's to the update
  absl::Status status_;           // of selecting
};

}  // namespace

absl::StatusOr<DroppingReducer> MakeDroppingReducer(UnitStore* store, World* world,
                                                    const ReducerOptions& options,
                                                    const DroppingOptions& dropping, int64_t step,
                                                    at::Tensor residual) {
  TESSERA_RETURN_IF_ERROR(ConnectHolders(store->plan(), store->rank(), world, store->options().sharded));
  TESSERA_ASSIGN_OR_RETURN(auto pieces,
                           KeptPieces::Create(store, world, dropping, step, std::move(residual)));
  DroppingReducer made;
  made.pieces = pieces.get();
  if (store->options().sharded) {
    made.reducer = std::make_unique<ShardedReducer>(store, world, options, std::move(pieces));
  } else {
    TESSERA_ASSIGN_OR_RETURN(made.reducer, SummingReducer::Create(store, world, options, std::move(pieces)));
  }
  return made;
}

}  // namespace tessera::worker

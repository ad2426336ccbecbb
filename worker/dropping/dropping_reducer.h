// The reducer of gradient dropping: in the hook of each gradient the selected elements go into the ring, the
// rest into the residual or nowhere, and the gradient is freed. The kept elements of a bucket are summed over
// the holders by a plain all-reduce while backward goes on. There is no other gradient memory.
//
// The ring is one block of memory that is turned over once a step: it holds exactly the kept elements of a
// step, as clipping needs all of them before the first is used. Producers are the hooks, the last consumer is
// the optimizer. It cannot run over, as its parts are laid out before.
//
// Lives on the trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/dropping/cut.h"
#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/selection.h"
#include "worker/parallel/bucketed_reducer.h"

namespace tessera::worker {

enum class ResidualKeep : uint8_t { kNone, kBf16, kFp32 };

struct DroppingOptions {
  const DroppingRule* rule = nullptr;
  double importance_share = 0;  // of each budget; what the rule picks
  int64_t refresh = 1;          // steps between picks
  ResidualKeep residual = ResidualKeep::kNone;
  bool freeze_unsent = false;  // the optimizer leaves unsent elements alone; otherwise their gradient is zero
  uint64_t seed = 1;
  std::vector<int64_t> kept;  // by parameter of the shape, of all its elements
};

class DroppingReducer final : public BucketedReducer {
 public:
  // step: finished so far. residual: of a reducer of the same store before, undefined for an empty one.
  // The store keeps no gradients. All ranks have the same options. InvalidArgument: a rule without what it
  // needs, or a budget that is none of its parameter's.
  static absl::StatusOr<std::unique_ptr<DroppingReducer>> Create(UnitStore* store, World* world,
                                                                 const ReducerOptions& reducer,
                                                                 const DroppingOptions& options, int64_t step,
                                                                 at::Tensor residual = {});
  ~DroppingReducer() override;

  void LeaveBlock(int block) override;
  absl::Status EndMicroStep() override;
  at::Tensor Sum(int position) const override;
  at::Tensor SumOfPiece(int position, int piece) const override;
  void Visit(int position, const Visitor& visitor) override;
  uint32_t SelectionCheck() const override;

  // Picks anew in the next step, whatever `refresh` says. Where a run may be resumed it picks as the resumed
  // one.
  void Refresh() override { refresh_now_ = true; }
  double kept_ratio() const override;
  const at::Tensor& residual() const { return residual_; }
  int64_t ring_bytes() const { return static_cast<int64_t>(ring_.nbytes()); }

 protected:
  void Accept(int parameter, const at::Tensor& rows) override;
  void OnBegin() override;
  at::Tensor MemoryOf(const Bucket& bucket) override;
  void FillIn(int bucket) override;

 private:
  // Of one parameter, what one group has: a tensor to the rules.
  struct Piece {
    int position = 0;  // in store->held()
    int bucket = 0;
    int64_t tensor = 0;
    GroupPiece place;
    int64_t kept = 0;
    int64_t ring = 0;      // first element in the ring
    int64_t residual = 0;  // first element in the residual
    Selection selection;   // of this step
    std::vector<uint64_t> picks;
    bool filled = false;  // in this step
    bool seen = false;    // in this micro-step
  };

  DroppingReducer(UnitStore* store, World* world, const ReducerOptions& reducer,
                  const DroppingOptions& options, int64_t step)
      : BucketedReducer(store, world, reducer), dropping_(options), step_(step - 1) {}
  absl::Status LayOut();
  void CutIntoBuckets(int position, size_t first_piece);
  RuleInput InputOf(const Piece& piece) const;
  ResidualView ResidualOf(const Piece& piece);
  absl::Status Select();
  absl::Status Pick(int position, const std::vector<Piece*>& pieces);
  void Cut(Piece& piece, const float* gradient);

  const DroppingOptions dropping_;
  int64_t step_;       // under way, from 0
  int64_t micro_ = 0;  // within it
  bool refresh_now_ = true;
  std::vector<Piece> pieces_;  // by position
  std::vector<std::vector<int>> by_parameter_;
  std::vector<std::pair<int64_t, int64_t>> spans_;  // by position: its part of the ring, begin and end
  std::vector<size_t> first_pieces_;                // by position: its first in pieces_
  at::Tensor ring_;
  at::Tensor residual_;  // fp32 or bf16; undefined: none
  int64_t largest_ = 0;  // elements of a piece that is kept in part
  absl::Status status_;  // of selecting
};

}  // namespace tessera::worker

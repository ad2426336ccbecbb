// What one rank keeps of its gradients: which elements of which tensors, where they are in the ring, and what
// becomes of the rest. How the kept elements are summed is the reducers' affair.
//
// A piece is what one group has of a parameter, or of a sharded store the part of that in one shard. All
// holders of a group have the same pieces and select the same elements.
//
// Lives on the trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/dropping/cut.h"
#include "worker/dropping/dropping_options.h"
#include "worker/dropping/kept_operations.h"
#include "worker/dropping/selection.h"
#include "worker/parallel/gradient_reducer.h"

namespace tessera::worker {

struct KeptPiece {
  int position = 0;    // in store->held()
  int section = 0;     // sharded: the holder, by its place in the group, that keeps this part; else 0
  int64_t tensor = 0;  // to the rules: the same on all holders, another for each piece
  GroupPiece place;
  int64_t offset = 0, elements = 0;  // in the group's flat tensor
  int64_t kept = 0;
  bool alone = false;                          // each holder selects `kept` elements for itself
  int64_t room = 0;                            // in the ring: kept, or what all holders may select together
  int64_t ring = 0;                            // first element in its section's part of the group's ring
  int64_t residual = 0;                        // first element in the residual
  Selection selection;                         // of this step; `alone`: in the end all holders' together
  std::unique_ptr<KeptOperations> operations;  // of the selection
  std::vector<uint64_t> picks;
  bool filled = false;  // something was cut into its part of the ring
};

class KeptPieces {
 public:
  // step: finished so far. residual: of what was kept before of the same store, undefined for an empty one:
  // the held groups' elements one behind the other, flat. InvalidArgument: a rule without what it needs, or a
  // budget that is none of its parameter's.
  static absl::StatusOr<std::unique_ptr<KeptPieces>> Create(UnitStore* store, World* world,
                                                            const DroppingOptions& options, int64_t step,
                                                            at::Tensor residual);

  // Begins a step: selects. Or another micro-step of it.
  absl::Status Begin(bool first);
  // Picks anew in the next step, whatever `refresh` says.
  void Refresh() { refresh_now_ = true; }
  // Moves what is kept of a fresh gradient [elements] to `ring` [kept], where it is added if the piece is
  // filled. null: zeros, with which what is left from earlier steps is sent.
  void Cut(KeptPiece& piece, const float* gradient, float* ring);
  // Cuts the parameter's gradient, rows outermost. ring_of: piece -> its part of the ring.
  void CutRows(int parameter, const at::Tensor& rows, const std::function<float*(KeptPiece&)>& ring_of);
  // Of a piece that holders select from each for itself: from now on what all of them have selected counts,
  // words as Selection's picks.
  void Join(KeptPiece& piece, std::vector<uint64_t> words);
  // Kept elements [begin, end) of the piece go back to the residual, if there is one.
  void Return(const KeptPiece& piece, int64_t begin, int64_t end, const float* ring);
  // Hands over what this rank keeps of a group, part by part: with the gradient spread out, zeros for what
  // was not sent; or, where unsent elements are frozen, what was sent alone. ring: of the group.
  void Visit(int position, const at::Tensor& ring, const GradientReducer::Visitor& visitor);

  std::vector<KeptPiece>& pieces() { return pieces_; }
  const std::vector<KeptPiece>& pieces() const { return pieces_; }
  // What this rank keeps of a parameter in a group; null: nothing.
  const KeptPiece* Own(int position, int parameter) const;
  Communicator& holders(int position) const { return *groups_[position]; }
  int own_section(int position) const { return own_sections_[position]; }
  bool owns(const KeptPiece& piece) const { return piece.section == own_sections_[piece.position]; }
  // Elements of the ring that a section of the group takes: of the largest, where they differ.
  int64_t section_elements(int position) const { return section_elements_[position]; }
  const DroppingOptions& options() const { return options_; }
  const at::Tensor& residual() const { return residual_; }
  // CPU time of this thread in selecting, cutting and spreading out since it was last asked.
  double TakeSeconds() { return std::exchange(seconds_, 0); }
  int64_t step() const { return step_; }  // under way, from 0
  // See GradientReducer. Of what this rank holds.
  uint32_t SelectionCheck() const;
  double kept_ratio() const;

 private:
  KeptPieces(UnitStore* store, const DroppingOptions& options, int64_t step)
      : store_(store),
        options_(options),
        device_(options.device != nullptr ? *options.device : HostKeptDevice()),
        step_(step - 1) {}
  absl::Status LayOut(World* world);
  void AddPieces(int position, const std::vector<int64_t>& kept_so_far);
  RuleInput InputOf(const KeptPiece& piece) const;
  ResidualView ResidualOf(const KeptPiece& piece);
  absl::Status Select();
  absl::Status Pick(int position, const std::vector<KeptPiece*>& pieces);
  void SelectAlone(KeptPiece& piece, const float* gradient);
  bool PicksFor(const KeptPiece& piece) const;
  void VisitFrozen(const KeptPiece& piece, StateSpan whole, const GradientReducer::Visitor& visitor);

  UnitStore* store_;
  const DroppingOptions options_;
  KeptDevice& device_;
  int64_t step_;
  int64_t micro_ = 0;  // within it
  bool refresh_now_ = true;
  bool pick_ = true;  // in this step
  double seconds_ = 0;
  std::vector<KeptPiece> pieces_;  // by position, then by section
  std::vector<std::vector<int>> by_parameter_;
  std::vector<Communicator*> groups_;  // by position, like the next two
  std::vector<int> own_sections_;
  std::vector<int64_t> section_elements_;
  at::Tensor residual_;  // fp32 or bf16; undefined: none
  int64_t largest_ = 0;  // elements of a piece that is kept in part
};

}  // namespace tessera::worker

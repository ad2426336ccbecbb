#include "worker/checkpoint/residual_state.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/whole_parameters.h"

namespace tessera::worker {

std::vector<HeldPiece> ResidualPieces(const UnitStore& store, const at::Tensor& residual) {
  std::vector<HeldPiece> pieces;
  if (!residual.defined()) return pieces;
  const plan::ModelShape& shape = store.model().shape();
  int64_t begin = 0;
  for (const GroupState& state : store.held()) {
    const UnitGroup& group = store.groups()[state.group];
    for (const GroupSlot& slot : group.slots) {
      HeldPiece piece;
      piece.unit = slot.slice.unit;
      piece.piece = Slice(shape, slot.slice.parameter, slot.slice.dim, slot.slice.begin, slot.slice.length);
      piece.owned = true;
      const at::Tensor flat = residual.narrow(0, begin + slot.offset, slot.slice.elements);
      piece.states.emplace_back("residual",
                                FromRows(shape.parameters[slot.slice.parameter], slot.slice.dim, flat));
      pieces.push_back(std::move(piece));
    }
    begin += group.elements;
  }
  return pieces;
}

absl::StatusOr<at::Tensor> LoadResidual(const std::string& checkpoint, const UnitStore& store,
                                        at::ScalarType type) {
  const at::NoGradGuard no_grad;
  TESSERA_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint));
  if (manifest.residuals.empty()) return at::Tensor();
  const plan::ModelShape& shape = store.model().shape();
  const plan::MaskPlan& plan = store.plan();
  int64_t elements = 0;
  for (const GroupState& state : store.held()) elements += store.groups()[state.group].elements;
  at::Tensor residual = at::zeros({elements}, type);
  const std::vector<HeldPiece> held = ResidualPieces(store, residual);
  const auto takes = [&](const HeldPiece& piece, int rank) {  // what `rank` had
    if (rank == store.rank()) return true;
    if (rank < plan.workers() && plan.Holds(rank, piece.unit)) return false;
    return plan.Holders(piece.unit)[0] == store.rank();
  };
  for (const ManifestFile& file : manifest.residuals) {
    if (std::none_of(held.begin(), held.end(),
                     [&](const HeldPiece& piece) { return takes(piece, file.unit); })) {
      continue;
    }
    TESSERA_RETURN_IF_ERROR(CheckFile(checkpoint, file));
    TESSERA_ASSIGN_OR_RETURN(const auto stored, SafetensorsFile::Open(checkpoint + "/" + file.file));
    for (const Piece& from : file.pieces) {
      at::Tensor value;
      for (const HeldPiece& to : held) {
        if (to.piece.parameter != from.parameter || !takes(to, file.unit)) continue;
        if (!value.defined()) {
          TESSERA_ASSIGN_OR_RETURN(value, stored->Read(absl::StrCat("residual.", PieceName(shape, from))));
        }
        if (!IsValid(shape, from) || value.scalar_type() != at::kFloat || value.numel() != from.count) {
          return absl::DataLossError(absl::StrCat(checkpoint, "/", file.file, ": residual.",
                                                  PieceName(shape, from), " is not ", from.count,
                                                  " numbers"));
        }
        const at::Tensor part = at::zeros(PieceDims(shape, to.piece), at::kFloat);
        if (CopyOverlap(shape, from, value.const_data_ptr<float>(), to.piece, part.data_ptr<float>()) > 0) {
          to.states[0].second.add_(part);
        }
      }
    }
  }
  return residual;
}

}  // namespace tessera::worker

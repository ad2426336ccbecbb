// What gradient dropping has not sent yet, in checkpoints. Every rank writes its own, as no two have the
// same; what counts is the sum over the ranks, so that whoever resumes a run may divide it otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/held_state.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

// residual: the held groups' elements one behind the other, flat (KeptPieces). Views of it, all of them
// written by this rank, the only state of each named "residual". Empty for an undefined one.
std::vector<HeldPiece> ResidualPieces(const UnitStore& store, const at::Tensor& residual);

// This rank's part of what the checkpoint has, in `type`, fp32 or bf16: of each element, what the same rank
// had, if it still holds the element; and for the owner of the element also what ranks had that do not hold
// it any more, or are gone. Undefined if the checkpoint has none. With the ranks and units that wrote it, and
// in the same type, exactly what was written. DataLoss names a damaged file.
absl::StatusOr<at::Tensor> LoadResidual(const std::string& checkpoint, const UnitStore& store,
                                        at::ScalarType type);

}  // namespace tessera::worker

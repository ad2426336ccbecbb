#include "worker/checkpoint/checkpoint.h"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker/checkpoint/agreement.h"
#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/checkpoint/whole_parameters.h"

namespace tessera::worker {
namespace {

// What the pieces of this rank have got so far.
class Filling {
 public:
  Filling(const plan::ModelShape& shape, std::vector<HeldPiece> pieces)
      : shape_(shape), pieces_(std::move(pieces)) {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      by_parameter_[pieces_[i].piece.parameter].push_back(i);
      copied_.emplace_back(pieces_[i].states.size());
    }
  }

  bool Wants(const ManifestFile& file) const {
    return std::any_of(file.pieces.begin(), file.pieces.end(),
                       [&](const Piece& piece) { return by_parameter_.contains(piece.parameter); });
  }

  absl::Status Take(const ManifestFile& file, const SafetensorsFile& stored) {
    for (const Piece& piece : file.pieces) {
      const auto wanted = by_parameter_.find(piece.parameter);
      if (wanted == by_parameter_.end()) continue;
      for (size_t index : wanted->second) TESSERA_RETURN_IF_ERROR(TakePiece(piece, stored, index));
    }
    return absl::OkStatus();
  }

  absl::Status CheckWhole() const {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      for (size_t s = 0; s < pieces_[i].states.size(); ++s) {
        if (copied_[i][s] == pieces_[i].piece.count) continue;
        return absl::DataLossError(absl::StrCat("holds ", copied_[i][s], " of the ", pieces_[i].piece.count,
                                                " elements of ", pieces_[i].states[s].first,
                                                pieces_[i].states[s].first.empty() ? "" : ".",
                                                PieceName(shape_, pieces_[i].piece)));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status TakePiece(const Piece& from, const SafetensorsFile& stored, size_t index) {
    HeldPiece& held = pieces_[index];
    for (size_t s = 0; s < held.states.size(); ++s) {
      const auto& [state, tensor] = held.states[s];
      const std::string name = absl::StrCat(state, state.empty() ? "" : ".", PieceName(shape_, from));
      TESSERA_ASSIGN_OR_RETURN(const at::Tensor value, stored.Borrow(name));
      if (value.scalar_type() != at::kFloat || value.numel() != from.count) {
        return absl::DataLossError(absl::StrCat(name, " is not ", from.count, " numbers in fp32"));
      }
      // On another device the tensor is filled by way of this one.
      const bool direct = tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
      const at::Tensor here = direct ? tensor : tensor.to(at::kCPU, at::kFloat).contiguous();
      const int64_t copied = CopyOverlap(shape_, from, value.const_data_ptr<float>(), held.piece,
                                         here.mutable_data_ptr<float>());
      if (!direct && copied > 0) tensor.copy_(here);
      copied_[index][s] += copied;
    }
    return absl::OkStatus();
  }

  const plan::ModelShape& shape_;
  std::vector<HeldPiece> pieces_;
  std::map<int, std::vector<size_t>> by_parameter_;
  std::vector<std::vector<int64_t>> copied_;  // elements, by piece and state
};

// Another checkpoint may well be readable when this is how one is not.
bool IsDamage(const absl::Status& status) { return absl::IsDataLoss(status) || absl::IsNotFound(status); }

}  // namespace

absl::StatusOr<std::string> WriteCheckpoint(const std::string& directory, const CheckpointInfo& info,
                                            const UnitStore& store, Communicator& all,
                                            const Retention& retention) {
  CheckpointWriter writer(directory, retention, &all);
  TESSERA_RETURN_IF_ERROR(writer.Begin(info, store));
  return writer.Finish();
}

absl::StatusOr<CheckpointInfo> LoadCheckpoint(const std::string& checkpoint, UnitStore* store) {
  const at::NoGradGuard no_grad;
  TESSERA_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint));
  const plan::ModelShape& shape = store->model().shape();
  if (manifest.shape_fingerprint != shape.Fingerprint()) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint,
                     ": is of another model than the job's; its config.json is in the manifest, under "
                     "model_config"));
  }
  std::vector<Piece> pieces;
  for (const ManifestFile& file : manifest.files) {
    pieces.insert(pieces.end(), file.pieces.begin(), file.pieces.end());
  }
  if (absl::Status status = CheckCoverage(shape, pieces); !status.ok()) {
    return absl::DataLossError(absl::StrCat(checkpoint, "/manifest.json: ", status.message()));
  }
  Filling filling(shape, HeldPieces(*store));
  for (const ManifestFile& file : manifest.files) {
    if (!filling.Wants(file)) continue;
    const std::string path = checkpoint + "/" + file.file;
    TESSERA_RETURN_IF_ERROR(CheckFile(checkpoint, file));
    TESSERA_ASSIGN_OR_RETURN(const auto stored, SafetensorsFile::Open(path));
    TESSERA_RETURN_IF_ERROR(filling.Take(file, *stored));
  }
  if (absl::Status status = filling.CheckWhole(); !status.ok()) {
    return absl::DataLossError(absl::StrCat(checkpoint, ": ", status.message()));
  }
  return manifest.info;
}

absl::StatusOr<Resumed> ResumeFrom(const std::string& checkpoint, bool allow_previous, UnitStore* store,
                                   Communicator& all) {
  Resumed resumed;
  std::vector<std::string> candidates = {checkpoint};
  if (allow_previous) {
    // Rank 0's list is everybody's.
    std::string list;
    for (const std::string& earlier : EarlierCheckpoints(checkpoint)) absl::StrAppend(&list, earlier, "\n");
    TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> lists, GatherTexts(list, all));
    for (absl::string_view path : absl::StrSplit(lists[0], '\n', absl::SkipEmpty()))
      candidates.emplace_back(path);
  }
  std::vector<std::string> damaged;
  for (const std::string& candidate : candidates) {
    const absl::StatusOr<CheckpointInfo> info = LoadCheckpoint(candidate, store);
    const absl::Status verdict = ShareVerdict(info.status(), all);
    if (verdict.ok()) {
      resumed.info = *info;
      resumed.checkpoint = candidate;
      if (all.rank() == 0) {
        for (const std::string& path : damaged) SetAside(path);
      }
      return resumed;
    }
    if (!IsDamage(verdict) || !allow_previous) {
      return absl::Status(
          verdict.code(),
          absl::StrCat(verdict.message(), IsDamage(verdict)
                                              ? "; spec.checkpoint.allowPrevious: true resumes from the "
                                                "checkpoint before it, if there is one"
                                              : ""));
    }
    resumed.passed_over.emplace_back(verdict.message());
    damaged.push_back(candidate);
  }
  return absl::DataLossError(
      absl::StrCat("no checkpoint can be read: ", absl::StrJoin(resumed.passed_over, "; ")));
}

}  // namespace tessera::worker

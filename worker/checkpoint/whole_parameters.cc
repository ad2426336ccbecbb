#include "worker/checkpoint/whole_parameters.h"

#include <torch/types.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/checkpoint/durable_file.h"

namespace tessera::worker {

absl::Status CheckFile(const std::string& checkpoint, const ManifestFile& file) {
  const std::string path = checkpoint + "/" + file.file;
  const absl::StatusOr<FileDigest> digest = Digest(path);
  if (absl::IsNotFound(digest.status())) return absl::DataLossError(digest.status().message());
  if (!digest.ok()) return digest.status();
  if (*digest == file.digest) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": damaged: ", digest->bytes, " bytes, the manifest says ",
                                          file.digest.bytes,
                                          digest->bytes == file.digest.bytes ? "; checksum differs" : ""));
}

absl::StatusOr<std::unique_ptr<WholeParameters>> WholeParameters::Open(const std::string& checkpoint,
                                                                       Manifest manifest,
                                                                       const plan::ModelShape& shape) {
  if (manifest.shape_fingerprint != shape.Fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat(checkpoint, ": is of another model"));
  }
  std::vector<Piece> pieces;
  for (const ManifestFile& file : manifest.files) {
    pieces.insert(pieces.end(), file.pieces.begin(), file.pieces.end());
  }
  if (absl::Status status = CheckCoverage(shape, pieces); !status.ok()) {
    return absl::DataLossError(absl::StrCat(checkpoint, "/manifest.json: ", status.message()));
  }
  return std::unique_ptr<WholeParameters>(new WholeParameters(checkpoint, std::move(manifest), shape));
}

absl::StatusOr<const SafetensorsFile*> WholeParameters::Open(const ManifestFile& file) {
  auto& open = open_[file.file];
  if (open == nullptr) {
    TESSERA_RETURN_IF_ERROR(CheckFile(checkpoint_, file));
    TESSERA_ASSIGN_OR_RETURN(open, SafetensorsFile::Open(checkpoint_ + "/" + file.file));
  }
  return open.get();
}

absl::StatusOr<at::Tensor> WholeParameters::Read(int parameter,
                                                 const std::function<double(const ManifestUnit&)>& scale) {
  const at::NoGradGuard no_grad;
  at::Tensor whole = at::empty(PieceDims(shape_, WholeParameter(shape_, parameter)));
  const Piece target = WholeParameter(shape_, parameter);
  for (const ManifestFile& file : manifest_.files) {
    for (const Piece& piece : file.pieces) {
      if (piece.parameter != parameter) continue;
      TESSERA_ASSIGN_OR_RETURN(const SafetensorsFile* stored, Open(file));
      const std::string name = PieceName(shape_, piece);
      TESSERA_ASSIGN_OR_RETURN(at::Tensor value, stored->Borrow(name));
      if (value.scalar_type() != at::kFloat || value.numel() != piece.count) {
        return absl::DataLossError(absl::StrCat(checkpoint_, "/", file.file, ": ", name, " is not ",
                                                piece.count, " numbers in fp32"));
      }
      const double factor = scale ? scale(manifest_.units[file.unit]) : 1.0;
      if (factor != 1) value = value * factor;
      CopyOverlap(shape_, piece, value.const_data_ptr<float>(), target, whole.mutable_data_ptr<float>());
    }
  }
  return whole;
}

}  // namespace tessera::worker

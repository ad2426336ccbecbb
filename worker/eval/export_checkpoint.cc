#include <torch/types.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/eval/export_model.h"
#include "worker/eval/job_model.h"

namespace tessera::worker {
namespace {

// Opens one unit's file at a time: parameters come in the order of the shape, so
// each file is opened once, or twice for the unit outside the blocks.
class UnitFiles {
 public:
  UnitFiles(std::string checkpoint, const Manifest& manifest, const plan::ModelShape& shape)
      : checkpoint_(std::move(checkpoint)), manifest_(manifest), shape_(shape) {}

  const ManifestUnit* UnitOfBlock(int block) const {
    // With block granularity unit 0 is everything outside the blocks and unit b + 1 is block b.
    const size_t index = static_cast<size_t>(block + 1);
    return index < manifest_.units.size() ? &manifest_.units[index] : nullptr;
  }

  absl::StatusOr<at::Tensor> Read(int parameter) {
    const plan::Parameter& p = shape_.parameters[parameter];
    const ManifestUnit* unit = UnitOfBlock(p.block);
    if (unit == nullptr) {
      return absl::DataLossError(absl::StrCat(checkpoint_, ": its manifest has no unit for ", p.name));
    }
    if (open_ != unit->file) {
      auto file = SafetensorsFile::Open(absl::StrCat(checkpoint_, "/", unit->file));
      if (absl::IsNotFound(file.status())) return absl::DataLossError(file.status().message());
      if (!file.ok()) return file.status();
      file_ = *std::move(file);
      open_ = unit->file;
    }
    TESSERA_ASSIGN_OR_RETURN(at::Tensor tensor, file_->Read(p.name));
    if (tensor.sizes() != at::IntArrayRef(p.dims)) {
      return absl::DataLossError(
          absl::StrCat(checkpoint_, "/", unit->file, ": ", p.name, " has another shape"));
    }
    return tensor;
  }

 private:
  const std::string checkpoint_;
  const Manifest& manifest_;
  const plan::ModelShape& shape_;
  std::string open_;
  std::unique_ptr<SafetensorsFile> file_;
};

}  // namespace

absl::Status ExportCheckpoint(const CheckpointExport& request) {
  TESSERA_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(request.checkpoint));
  TESSERA_ASSIGN_OR_RETURN(const auto model, MakeModel({.config_json = manifest.model_config}));
  bool scaled = false;
  if (request.evaluation_scale.has_value()) {
    scaled = *request.evaluation_scale;
  } else {
    TESSERA_ASSIGN_OR_RETURN(scaled, UsesEvaluationScale(manifest.info.job));
  }
  UnitFiles files(request.checkpoint, manifest, model->shape());
  ExportSource source;
  source.parameter = [&](int parameter) { return files.Read(parameter); };
  source.scale = [&](int block) {
    const ManifestUnit* unit = files.UnitOfBlock(block);
    return !scaled || unit == nullptr || unit->always_on ? 1.0 : unit->holder_share;
  };
  source.tokenizer = request.tokenizer.empty() ? TokenizerFolderOfJob(manifest.info.job) : request.tokenizer;
  return ExportModel(*model, source, request.folder, request.overwrite);
}

}  // namespace tessera::worker

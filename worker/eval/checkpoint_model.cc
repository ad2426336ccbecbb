#include "worker/eval/checkpoint_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "worker/eval/job_model.h"

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<CheckpointModel>> CheckpointModel::Open(const std::string& checkpoint,
                                                                       std::optional<bool> evaluation_scale) {
  std::unique_ptr<CheckpointModel> opened(new CheckpointModel);
  TESSERA_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(checkpoint));
  TESSERA_ASSIGN_OR_RETURN(opened->model_, MakeModel({.config_json = manifest.model_config}));
  if (evaluation_scale.has_value()) {
    opened->scaled_ = *evaluation_scale;
  } else {
    TESSERA_ASSIGN_OR_RETURN(opened->scaled_, UsesEvaluationScale(manifest.info.job));
  }
  TESSERA_ASSIGN_OR_RETURN(opened->parameters_,
                           WholeParameters::Open(checkpoint, std::move(manifest), opened->model_->shape()));
  return opened;
}

absl::StatusOr<at::Tensor> CheckpointModel::Read(int parameter) {
  const bool buffer = parameter >= static_cast<int>(model_->shape().parameters.size());
  const int block = buffer ? plan::kNoBlock : model_->shape().parameters[parameter].block;
  if (!scaled_ || block == plan::kNoBlock) return parameters_->Read(parameter);
  const std::vector<int> outputs = model_->BranchOutputs(block);
  if (std::find(outputs.begin(), outputs.end(), parameter) == outputs.end())
    return parameters_->Read(parameter);
  return parameters_->Read(parameter,
                           [](const ManifestUnit& unit) { return unit.always_on ? 1.0 : unit.holder_share; });
}

std::string CheckpointModel::tokenizer() const {
  return TokenizerFolderOfJob(parameters_->manifest().info.job);
}

}  // namespace tessera::worker

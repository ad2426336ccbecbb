#include "worker/eval/exported_model.h"

#include <torch/types.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/checkpoint/hf_weights.h"
#include "worker/data/text_file.h"
#include "worker/eval/checkpoint_model.h"

namespace tessera::worker {

namespace {

absl::StatusOr<ExportedModel> OpenCheckpoint(const std::string& folder) {
  ExportedModel exported;
  TESSERA_ASSIGN_OR_RETURN(const auto checkpoint, CheckpointModel::Open(folder, std::nullopt));
  for (int i = 0; i < TensorCount(checkpoint->model().shape()); ++i) {
    TESSERA_ASSIGN_OR_RETURN(at::Tensor tensor, checkpoint->Read(i));
    exported.weights.push_back(std::move(tensor));
  }
  if (const std::string tokenizer = checkpoint->tokenizer(); !tokenizer.empty()) {
    TESSERA_ASSIGN_OR_RETURN(exported.tokenizer, OpenTokenizer(tokenizer));
  }
  exported.model = checkpoint->TakeModel();
  return exported;
}

}  // namespace

absl::StatusOr<ExportedModel> OpenExportedModel(const std::string& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(folder + "/manifest.json", ignored)) return OpenCheckpoint(folder);
  ExportedModel exported;
  TESSERA_ASSIGN_OR_RETURN(const std::string config, ReadTextFile(folder + "/config.json"));
  TESSERA_ASSIGN_OR_RETURN(exported.model, MakeModel({.config_json = config}));
  TESSERA_ASSIGN_OR_RETURN(const auto weights, HuggingFaceWeights::Open(folder, exported.model->shape()));
  TESSERA_ASSIGN_OR_RETURN(exported.weights, weights->ReadAll());
  auto tokenizer = OpenTokenizer(folder);
  if (tokenizer.ok()) {
    exported.tokenizer = *std::move(tokenizer);
  } else if (!absl::IsNotFound(tokenizer.status())) {
    return tokenizer.status();
  }
  return exported;
}

at::Tensor WholeRunner::Run(int /*block*/, const at::Tensor& x, const BlockBody& body) { return body(x, 1); }

}  // namespace tessera::worker

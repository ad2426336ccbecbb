#include "worker/eval/exported_model.h"

#include <torch/types.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/data/text_file.h"
#include "worker/eval/hf_weights.h"

namespace tessera::worker {

absl::StatusOr<ExportedModel> OpenExportedModel(const std::string& folder) {
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

at::Tensor WholeRunner::Run(int block, const at::Tensor& x, const BlockBody& body) { return body(x, 1); }

}  // namespace tessera::worker

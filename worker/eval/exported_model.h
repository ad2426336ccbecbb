// A whole model in one process, read from a folder in the Hugging Face layout.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/tokenizer.h"
#include "worker/models/model.h"

namespace tessera::worker {

struct ExportedModel {
  std::unique_ptr<Model> model;
  Weights weights;
  std::unique_ptr<Tokenizer> tokenizer;  // null when the folder has none of ours
};

// folder: config.json, model.safetensors (or several with an index), tokenizer files; or a complete
// checkpoint, whose model is scaled as its job evaluated it and whose tokenizer is that of the job's data, if
// still there.
absl::StatusOr<ExportedModel> OpenExportedModel(const std::string& folder);

// Every block, as it is.
class WholeRunner final : public BlockRunner {
 public:
  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override;
};

}  // namespace tessera::worker

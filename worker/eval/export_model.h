// Writes an assembled model in the Hugging Face layout: config.json,
// model.safetensors and tokenizer files, as transformers opens them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "worker/models/model.h"

namespace tessera::worker {

struct ExportSource {
  // fp32 of the dims of a parameter or, after those, of a buffer. Asked in the order of the shape; one tensor
  // lives at a time.
  std::function<absl::StatusOr<at::Tensor>(int parameter)> parameter;
  // Evaluation scale of a block's residual branches, folded into the weights that make them. Unset: 1.
  std::function<double(int block)> scale;
  std::string tokenizer;  // folder of a tokenizer; empty: none is written
};

// The folder appears whole or not at all. AlreadyExists when it is there and not
// empty, unless `overwrite`, which replaces it.
absl::Status ExportModel(const Model& model, const ExportSource& source, const std::string& folder,
                         bool overwrite = false);

struct CheckpointExport {
  std::string checkpoint;  // a complete one
  std::string folder;      // to be made
  std::string tokenizer;   // folder; empty: that of the job's data, if the manifest has it
  bool overwrite = false;
  // Fold C into branches not held by every worker. Unset: as the job in the checkpoint evaluated.
  std::optional<bool> evaluation_scale;
};

// Assembles from the units' files, without any communication. DataLoss names a damaged or missing
// file; InvalidArgument: the checkpoint holds no job to take the scale from, and none was given.
absl::Status ExportCheckpoint(const CheckpointExport& request);

}  // namespace tessera::worker

// Weights in the Hugging Face layout: model.safetensors, or several files named by
// model.safetensors.index.json.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/model_shape.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/models/model.h"

namespace tessera::worker {

// The tensors of a model, opened and checked but not read.
class HuggingFaceWeights {
 public:
  // path: a folder or one safetensors file. InvalidArgument lists everything that does not match the
  // shape at once: missing, unexpected and misshapen tensors. A head stored beside a tied embedding
  // and rotary frequencies of old exports are no surprise.
  static absl::StatusOr<std::unique_ptr<HuggingFaceWeights>> Open(const std::string& path,
                                                                  const plan::ModelShape& shape);
  // fp32, the parameter's dims.
  absl::StatusOr<at::Tensor> Read(int parameter) const;
  absl::StatusOr<Weights> ReadAll() const;

 private:
  HuggingFaceWeights() = default;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::string> names_;          // by parameter, then buffer
  std::vector<const SafetensorsFile*> in_;  // by parameter
};

}  // namespace tessera::worker

// The assembled model that a checkpoint stands for.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/whole_parameters.h"
#include "worker/models/model.h"

namespace tessera::worker {

class CheckpointModel {
 public:
  // evaluation_scale: fold C into the output of branches that not every worker held, piece by piece. Unset:
  // as the job in the checkpoint evaluated; InvalidArgument when it holds no job.
  static absl::StatusOr<std::unique_ptr<CheckpointModel>> Open(const std::string& checkpoint,
                                                               std::optional<bool> evaluation_scale);

  const Model& model() const { return *model_; }
  // A parameter or, after those, a buffer: fp32, its dims.
  absl::StatusOr<at::Tensor> Read(int parameter);
  // Folder of the job's tokenizer; empty when it is not where the job had it.
  std::string tokenizer() const;
  std::unique_ptr<Model> TakeModel() { return std::move(model_); }  // the last call

 private:
  CheckpointModel() = default;
  std::unique_ptr<Model> model_;
  std::unique_ptr<WholeParameters> parameters_;
  bool scaled_ = false;
};

}  // namespace tessera::worker

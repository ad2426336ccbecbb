#include "worker/models/classes.h"

#include <torch/types.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "worker/models/normal.h"

namespace tessera::worker {

at::Tensor ClassLoss(const at::Tensor& logits, const Batch& batch) {
  return at::cross_entropy_loss(logits.to(at::kFloat), batch.targets, {}, at::Reduction::Sum, kIgnoredTarget);
}

void AddLabels(int64_t classes, nlohmann::ordered_json& config) {
  for (int64_t i = 0; i < classes; ++i) {
    const std::string name = absl::StrCat("LABEL_", i);
    config["id2label"][absl::StrCat(i)] = name;
    config["label2id"][name] = i;
  }
}

ModelInput ImageInput(int64_t classes, int64_t channels, int64_t size) {
  return {.task = Task::kImageClass, .classes = classes, .channels = channels, .height = size, .width = size};
}

void InitializeParameter(const plan::Parameter& parameter, uint64_t seed, double constant, double deviation,
                         at::Tensor& out) {
  const at::NoGradGuard no_grad;
  if (parameter.dims.size() == 1) {
    out.fill_(constant);
    return;
  }
  FillNormal(seed, parameter.name, deviation,
             {out.mutable_data_ptr<float>(), static_cast<size_t>(out.numel())});
}

}  // namespace tessera::worker

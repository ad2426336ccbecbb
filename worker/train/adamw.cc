#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>

#include <cmath>
#include <optional>
#include <vector>

#include "base/check.h"
#include "worker/dropping/kept_operations.h"
#include "worker/train/optimizer.h"

namespace tessera::worker {
namespace {

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const OptimizerOptions& options) : options_(options) {}

  std::vector<std::string> moments() const override { return {"exp_avg", "exp_avg_sq"}; }

  void Step(GroupState& state, int64_t step, double learning_rate, double divisor) const override {
    const at::NoGradGuard no_grad;
    std::optional<at::Tensor> scale;
    for (const bool decay : {true, false}) {
      const SpanLists spans = ListSpans(state, decay);
      if (spans.parameters.empty()) continue;
      const at::TensorOptions scalar = spans.parameters[0].options().dtype(at::kFloat);
      if (divisor != 1) scale = at::full({}, divisor, scalar);
      const std::vector<at::Tensor> steps(spans.parameters.size(),
                                          at::full({}, static_cast<double>(step), scalar));
      at::_fused_adamw_(spans.parameters, spans.gradients, spans.moments[0], spans.moments[1], {}, steps,
                        learning_rate, options_.beta1, options_.beta2, decay ? options_.weight_decay : 0,
                        options_.epsilon, /*amsgrad=*/false, /*maximize=*/false, scale,
                        /*found_inf=*/std::nullopt);
    }
    for (const StateSpan& span : state.spans) {
      if (span.kept != nullptr) StepKept(span, step, learning_rate, divisor);
    }
  }

 private:
  void StepKept(const StateSpan& span, int64_t step, double learning_rate, double divisor) const {
    const auto t = static_cast<double>(step);
    kernels::UpdateArguments update;
    update.step = {.learning_rate = static_cast<float>(learning_rate),
                   .beta1 = static_cast<float>(options_.beta1),
                   .beta2 = static_cast<float>(options_.beta2),
                   .epsilon = static_cast<float>(options_.epsilon),
                   .weight_decay = static_cast<float>(span.decay ? options_.weight_decay : 0),
                   .divisor = static_cast<float>(divisor),
                   .correction1 = static_cast<float>(1 - std::pow(options_.beta1, t)),
                   .root_correction2 = static_cast<float>(std::sqrt(1 - std::pow(options_.beta2, t)))};
    update.freeze_unsent = span.freeze_unsent;
    update.ring = span.gradients.const_data_ptr<float>();
    update.parameters = span.parameters.data_ptr<float>();
    update.first = span.moments[0].data_ptr<float>();
    update.second = span.moments[1].data_ptr<float>();
    TESSERA_CHECK(span.kept->Update(update));
  }

  const OptimizerOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdamW(const OptimizerOptions& options) {
  return std::make_unique<AdamW>(options);
}

}  // namespace tessera::worker

#include <ATen/ATen.h>
#include <ATen/ops/_fused_adamw.h>

#include <optional>
#include <vector>

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
    if (divisor != 1) scale = at::full({}, divisor, at::kFloat);
    for (const bool decay : {true, false}) {
      const SpanLists spans = ListSpans(state, decay);
      if (spans.parameters.empty()) continue;
      const std::vector<at::Tensor> steps(spans.parameters.size(),
                                          at::full({}, static_cast<double>(step), at::kFloat));
      at::_fused_adamw_(spans.parameters, spans.gradients, spans.moments[0], spans.moments[1], {}, steps,
                        learning_rate, options_.beta1, options_.beta2, decay ? options_.weight_decay : 0,
                        options_.epsilon, /*amsgrad=*/false, /*maximize=*/false, scale,
                        /*found_inf=*/std::nullopt);
    }
  }

 private:
  const OptimizerOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdamW(const OptimizerOptions& options) {
  return std::make_unique<AdamW>(options);
}

}  // namespace tessera::worker

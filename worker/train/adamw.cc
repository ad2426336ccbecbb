#include "worker/train/adamw.h"

#include <ATen/ops/_fused_adamw.h>

#include <optional>
#include <vector>

namespace tessera::worker {

void AdamWStep(UnitState& unit, const AdamWOptions& options, int64_t step, double learning_rate,
               double divisor) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> steps{at::full({}, static_cast<double>(step), at::kFloat)};
  std::optional<at::Tensor> scale;
  if (divisor != 1) scale = at::full({}, divisor, at::kFloat);
  const auto update = [&](int64_t begin, int64_t end, double weight_decay) {
    if (begin == end) return;
    const auto slice = [&](const at::Tensor& flat) {
      return std::vector<at::Tensor>{flat.slice(0, begin, end)};
    };
    at::_fused_adamw_(slice(unit.parameters), slice(unit.gradients), slice(unit.exp_avg),
                      slice(unit.exp_avg_sq), {}, steps, learning_rate, options.beta1, options.beta2,
                      weight_decay, options.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false, scale, /*found_inf=*/std::nullopt);
  };
  update(0, unit.layout.decayed, options.weight_decay);
  update(unit.layout.decayed, unit.layout.elements, 0);
}

}  // namespace tessera::worker

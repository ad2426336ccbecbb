#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_sgd.h>

#include <optional>
#include <vector>

#include "worker/train/optimizer.h"

namespace tessera::worker {
namespace {

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const OptimizerOptions& options) : options_(options) {}

  std::vector<std::string> moments() const override {
    if (options_.momentum == 0) return {};
    return {"momentum_buffer"};
  }

  void Step(GroupState& state, int64_t, double learning_rate, double divisor) const override {
    const at::NoGradGuard no_grad;
    std::optional<at::Tensor> scale;
    for (const bool decay : {true, false}) {
      const SpanLists spans = ListSpans(state, decay);
      if (spans.parameters.empty()) continue;
      if (divisor != 1) scale = at::full({}, divisor, spans.parameters[0].options().dtype(at::kFloat));
      // A buffer of zeros makes the first step like the others.
      at::_fused_sgd_(spans.parameters, spans.gradients,
                      spans.moments.empty() ? std::vector<at::Tensor>{} : spans.moments[0],
                      decay ? options_.weight_decay : 0, options_.momentum, learning_rate, /*dampening=*/0,
                      /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false, scale,
                      /*found_inf=*/std::nullopt);
    }
  }

 private:
  const OptimizerOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeSgd(const OptimizerOptions& options) { return std::make_unique<Sgd>(options); }

}  // namespace tessera::worker

#include "worker/nn/linear.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <optional>

#include "worker/nn/autocast.h"

namespace tessera::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearBf16Function : torch::autograd::Function<LinearBf16Function> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    const at::Tensor kept = x.to(at::kBFloat16);
    ctx->save_for_backward({kept, weight});
    ctx->saved_data["type"] = x.scalar_type();
    ctx->saved_data["bias"] = bias.has_value();
    std::optional<at::Tensor> narrow;
    if (bias.has_value()) narrow = bias->to(at::kBFloat16);
    return at::linear(kept, weight.to(at::kBFloat16), narrow);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor x_NK = x.reshape({-1, x.size(-1)}), dy_ND = grads[0].reshape({-1, grads[0].size(-1)});
    at::Tensor d_x, d_weight, d_bias;
    if (ctx->needs_input_grad(0)) {
      d_x = dy_ND.mm(weight.to(at::kBFloat16)).view(x.sizes()).to(ctx->saved_data["type"].toScalarType());
    }
    if (ctx->needs_input_grad(1)) {
      // In the weight's own order in memory, so that the gradient is taken over without a copy.
      d_weight = (weight.is_contiguous() ? dy_ND.t().mm(x_NK) : x_NK.t().mm(dy_ND).t()).to(at::kFloat);
    }
    if (ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2)) d_bias = dy_ND.sum(0).to(at::kFloat);
    return {d_x, d_weight, d_bias};
  }
};

}  // namespace

at::Tensor ForProducts(const at::Tensor& x) { return Autocast::Enabled() ? x.to(at::kBFloat16) : x; }

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight_DK, const at::Tensor& bias_D) {
  std::optional<at::Tensor> bias;
  if (bias_D.defined()) bias = bias_D;
  return Autocast::Enabled() ? LinearBf16Function::apply(x, weight_DK, bias) : at::linear(x, weight_DK, bias);
}

at::Tensor AddProduct(const at::Tensor& residual_ND, const at::Tensor& a_NK, const at::Tensor& weight_DK,
                      double scale) {
  if (!Autocast::Enabled()) return at::addmm(residual_ND, a_NK, weight_DK.t(), 1, scale);
  return at::add(residual_ND, Linear(a_NK, weight_DK), scale);
}

}  // namespace tessera::worker

#include "worker/nn/swiglu.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include "worker/nn/host_loops.h"
#include "worker/nn/simd.h"

namespace tessera::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 16384;

at::Tensor Gated(const at::Tensor& gate, const at::Tensor& up) {
  if (!HasHostLoops(gate)) return at::silu(gate).mul_(up);
  at::Tensor product = at::empty_like(gate);
  const float* g = gate.const_data_ptr<float>();
  const float* u = up.const_data_ptr<float>();
  float* out = product.mutable_data_ptr<float>();
  at::parallel_for(0, gate.numel(), kGrain, [&](int64_t begin, int64_t end) {
    RunSimd([&]() TESSERA_INLINE {
      for (int64_t i = begin; i < end; ++i) out[i] = g[i] / (1.0f + VectorExp(-g[i])) * u[i];
    });
  });
  return product;
}

struct Gradients {
  at::Tensor gate;
  at::Tensor up;
};

// d_product becomes the gradient of up in place.
Gradients GatedBackward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& d_product) {
  if (!HasHostLoops(gate)) return {at::silu_backward(d_product * up, gate), at::silu(gate).mul_(d_product)};
  at::Tensor d_gate = at::empty_like(gate);
  const float* g = gate.const_data_ptr<float>();
  const float* u = up.const_data_ptr<float>();
  float* dp = d_product.mutable_data_ptr<float>();
  float* dg = d_gate.mutable_data_ptr<float>();
  at::parallel_for(0, gate.numel(), kGrain, [&](int64_t begin, int64_t end) {
    RunSimd([&]() TESSERA_INLINE {
      for (int64_t i = begin; i < end; ++i) {
        const float sigmoid = 1.0f / (1.0f + VectorExp(-g[i]));
        const float silu = g[i] * sigmoid;
        dg[i] = dp[i] * u[i] * (sigmoid + silu * (1.0f - sigmoid));
        dp[i] = dp[i] * silu;
      }
    });
  });
  return {d_gate, d_product};
}

struct SwiGluDownFunction : torch::autograd::Function<SwiGluDownFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& residual, const at::Tensor& gate,
                            const at::Tensor& up, const at::Tensor& down, double scale) {
    ctx->save_for_backward({gate, up, down});
    ctx->saved_data["scale"] = scale;
    return at::addmm(residual, Gated(gate, up), down.t(), 1, scale);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1], &down = saved[2];
    const double scale = ctx->saved_data["scale"].toDouble();
    const at::Tensor dy = grads[0].contiguous();
    const at::Tensor dy_scaled = scale == 1 ? dy : dy * scale;
    at::Tensor d_down;
    if (ctx->needs_input_grad(3)) {
      // In the weight's own order in memory, so that the gradient is taken over without a copy.
      const at::Tensor gated = Gated(gate, up);
      d_down = down.is_contiguous() ? dy_scaled.t().mm(gated) : gated.t().mm(dy_scaled).t();
    }
    Gradients d;
    if (ctx->needs_input_grad(1) || ctx->needs_input_grad(2)) d = GatedBackward(gate, up, dy_scaled.mm(down));
    return {dy, d.gate, d.up, d_down, at::Tensor()};
  }
};

// gate and up are bf16 and kept as that; what is computed of them is fp32 between the products.
struct SwiGluDownBf16Function : torch::autograd::Function<SwiGluDownBf16Function> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& residual, const at::Tensor& gate,
                            const at::Tensor& up, const at::Tensor& down, double scale) {
    ctx->save_for_backward({gate, up, down});
    ctx->saved_data["scale"] = scale;
    const at::Tensor gated = Gated(gate.to(at::kFloat), up.to(at::kFloat)).to(at::kBFloat16);
    return at::add(residual, gated.mm(down.to(at::kBFloat16).t()), scale);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor gate = saved[0].to(at::kFloat), up = saved[1].to(at::kFloat), &down = saved[2];
    const at::Tensor dy = grads[0].contiguous();
    const at::Tensor dy_scaled = (dy * ctx->saved_data["scale"].toDouble()).to(at::kBFloat16);
    at::Tensor d_down;
    if (ctx->needs_input_grad(3)) {
      const at::Tensor gated = Gated(gate, up).to(at::kBFloat16);
      d_down = (down.is_contiguous() ? dy_scaled.t().mm(gated) : gated.t().mm(dy_scaled).t()).to(at::kFloat);
    }
    Gradients d;
    if (ctx->needs_input_grad(1) || ctx->needs_input_grad(2)) {
      d = GatedBackward(gate, up, dy_scaled.mm(down.to(at::kBFloat16)).to(at::kFloat));
      d.gate = d.gate.to(at::kBFloat16);
      d.up = d.up.to(at::kBFloat16);
    }
    return {dy, d.gate, d.up, d_down, at::Tensor()};
  }
};

}  // namespace

at::Tensor SwiGluDown(const at::Tensor& residual_ND, const at::Tensor& gate_NF, const at::Tensor& up_NF,
                      const at::Tensor& down_DF, double scale) {
  TORCH_CHECK(gate_NF.scalar_type() == up_NF.scalar_type() && gate_NF.sizes() == up_NF.sizes(),
              "SwiGluDown: gate ", gate_NF.sizes(), " against up ", up_NF.sizes());
  if (gate_NF.scalar_type() == at::kBFloat16) {
    return SwiGluDownBf16Function::apply(residual_ND, gate_NF.contiguous(), up_NF.contiguous(), down_DF,
                                         scale);
  }
  return SwiGluDownFunction::apply(residual_ND, gate_NF.contiguous(), up_NF.contiguous(), down_DF, scale);
}

}  // namespace tessera::worker

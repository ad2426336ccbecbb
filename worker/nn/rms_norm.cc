#include "worker/nn/rms_norm.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "worker/nn/host_loops.h"
#include "worker/nn/simd.h"

namespace tessera::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows are cut in this many parts whatever the number of threads: the weight's
// gradient is summed in the same order on one thread and on many.
constexpr int64_t kParts = 8;

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double epsilon) {
    const int64_t width = x.size(-1), rows = x.numel() / width;
    if (!HasHostLoops(x)) {
      const at::Tensor scale = x.square().mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();
      ctx->save_for_backward({x, weight, scale});
      return (x * scale).mul_(weight);
    }
    at::Tensor y = at::empty_like(x);
    at::Tensor scale = at::empty({rows}, x.options());
    const float* in = x.const_data_ptr<float>();
    const float* w = weight.const_data_ptr<float>();
    float* out = y.mutable_data_ptr<float>();
    float* scales = scale.mutable_data_ptr<float>();
    at::parallel_for(0, rows, 64, [&](int64_t begin, int64_t end) {
      RunSimd([&]() TESSERA_INLINE {
        for (int64_t row = begin; row < end; ++row) {
          const float* a = in + row * width;
          float* b = out + row * width;
          const float mean = LaneSum(width, [&](int64_t i) TESSERA_INLINE { return a[i] * a[i]; }) / width;
          const float s = 1.0f / std::sqrt(mean + static_cast<float>(epsilon));
          for (int64_t i = 0; i < width; ++i) b[i] = a[i] * s * w[i];
          scales[row] = s;
        }
      });
    });
    ctx->save_for_backward({x, weight, scale});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
    const at::Tensor dy = grads[0].contiguous();
    const int64_t width = x.size(-1), rows = x.numel() / width;
    if (!HasHostLoops(x)) {
      const at::Tensor normal = x * scale;
      const at::Tensor d_weight = (dy * normal).view({rows, width}).sum(0);
      const at::Tensor d_normal = dy * weight;
      const at::Tensor mean = (d_normal * normal).mean(-1, /*keepdim=*/true);
      return {(d_normal - normal * mean).mul_(scale), d_weight, at::Tensor()};
    }
    at::Tensor dx = at::empty_like(x);
    at::Tensor parts = at::zeros({kParts, width}, x.options());
    const float* in = x.const_data_ptr<float>();
    const float* w = weight.const_data_ptr<float>();
    const float* scales = scale.const_data_ptr<float>();
    const float* g = dy.const_data_ptr<float>();
    float* out = dx.mutable_data_ptr<float>();
    float* dw = parts.mutable_data_ptr<float>();
    at::parallel_for(0, kParts, 1, [&](int64_t first, int64_t last) {
      RunSimd([&]() TESSERA_INLINE {
        for (int64_t part = first; part < last; ++part) {
          float* sums = dw + part * width;
          for (int64_t row = rows * part / kParts; row < rows * (part + 1) / kParts; ++row) {
            const float* a = in + row * width;
            const float* b = g + row * width;
            float* c = out + row * width;
            const float s = scales[row];
            const float dot = LaneSum(width, [&](int64_t i) TESSERA_INLINE { return b[i] * w[i] * a[i]; });
            const float back = dot * s * s * s / width;
            for (int64_t i = 0; i < width; ++i) {
              c[i] = b[i] * w[i] * s - a[i] * back;
              sums[i] += b[i] * a[i] * s;
            }
          }
        }
      });
    });
    return {dx, parts.sum(0), at::Tensor()};
  }
};

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  TORCH_CHECK(weight.scalar_type() == at::kFloat, "RmsNorm takes weights in fp32");
  TORCH_CHECK(x.size(-1) == weight.numel(), "RmsNorm: width ", x.size(-1), " against weight ",
              weight.numel());
  return RmsNormFunction::apply(x.to(at::kFloat).contiguous(), weight, epsilon);
}

}  // namespace tessera::worker

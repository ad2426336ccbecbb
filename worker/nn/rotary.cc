#include "worker/nn/rotary.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <cmath>

#include "worker/nn/host_loops.h"
#include "worker/nn/simd.h"

namespace tessera::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// direction 1 rotates forward, -1 back (the transpose: the gradient).
at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, float direction) {
  const int64_t positions = x.size(1), heads = x.size(2), half = x.size(3) / 2;
  if (!HasHostLoops(x)) {
    const at::Tensor left = x.narrow(3, 0, half), right = x.narrow(3, half, half);
    const auto of = [&](const at::Tensor& table) { return table.narrow(0, 0, positions).unsqueeze(1); };
    const at::Tensor c = of(cosine), turn = of(sine) * direction;
    return at::cat({left * c - right * turn, right * c + left * turn}, 3);
  }
  at::Tensor y = at::empty(x.sizes(), x.options());
  const float* in = x.const_data_ptr<float>();
  const float* cosines = cosine.const_data_ptr<float>();
  const float* sines = sine.const_data_ptr<float>();
  float* out = y.mutable_data_ptr<float>();
  at::parallel_for(0, x.size(0) * positions, 64, [&](int64_t begin, int64_t end) {
    RunSimd([&]() TESSERA_INLINE {
      for (int64_t row = begin; row < end; ++row) {
        const float* c = cosines + row % positions * half;
        const float* s = sines + row % positions * half;
        for (int64_t head = 0; head < heads; ++head) {
          const float* a = in + (row * heads + head) * 2 * half;
          float* b = out + (row * heads + head) * 2 * half;
          for (int64_t i = 0; i < half; ++i) {
            const float left = a[i], right = a[i + half], turn = direction * s[i];
            b[i] = left * c[i] - right * turn;
            b[i + half] = right * c[i] + left * turn;
          }
        }
      }
    });
  });
  return y;
}

struct RotaryFunction : torch::autograd::Function<RotaryFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    ctx->save_for_backward({cosine, sine});
    return Rotate(x, cosine, sine, 1);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    return {Rotate(grads[0].contiguous(), saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

RotaryTable MakeRotaryTable(int64_t positions, int64_t head_size, double theta) {
  const int64_t half = head_size / 2;
  RotaryTable table{at::empty({positions, half}), at::empty({positions, half})};
  float* cosine = table.cosine.mutable_data_ptr<float>();
  float* sine = table.sine.mutable_data_ptr<float>();
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_size);
    const float frequency = 1.0f / std::pow(static_cast<float>(theta), exponent);
    for (int64_t position = 0; position < positions; ++position) {
      const float angle = static_cast<float>(position) * frequency;
      cosine[position * half + i] = std::cos(angle);
      sine[position * half + i] = std::sin(angle);
    }
  }
  return table;
}

at::Tensor ApplyRotary(const at::Tensor& x_BTHK, const RotaryTable& table) {
  TORCH_CHECK(x_BTHK.dim() == 4, "ApplyRotary takes [B, T, H, K]");
  TORCH_CHECK(table.cosine.size(0) >= x_BTHK.size(1) && table.cosine.size(1) * 2 == x_BTHK.size(3),
              "ApplyRotary: table ", table.cosine.sizes(), " against ", x_BTHK.sizes());
  return RotaryFunction::apply(x_BTHK.to(at::kFloat).contiguous(), table.cosine, table.sine)
      .to(x_BTHK.scalar_type());
}

}  // namespace tessera::worker

#include "worker/nn/chunked_cross_entropy.h"

#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "worker/nn/autocast.h"
#include "worker/nn/device_softmax.h"
#include "worker/nn/host_loops.h"
#include "worker/nn/simd.h"

namespace tessera::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kLeastChunk = 64;

// Turns logits [n, V] into d(sum of losses)/d(logits) in place if `gradient`; returns the
// sum of losses. Rows whose target is `ignored` become zero.
double SoftmaxLoss(at::Tensor& logits, const int64_t* targets, int64_t ignored, bool gradient) {
  const int64_t rows = logits.size(0), vocabulary = logits.size(1);
  float* data = logits.mutable_data_ptr<float>();
  std::vector<double> losses(rows, 0.0);
  at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
    RunSimd([&]() TESSERA_INLINE {
      for (int64_t row = begin; row < end; ++row) {
        float* z = data + row * vocabulary;
        const int64_t target = targets[row];
        if (target == ignored) {
          for (int64_t i = 0; i < vocabulary; ++i) z[i] = 0;
          continue;
        }
        float lanes[kLanes];
        for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
        int64_t i = 0;
        for (; i + kLanes <= vocabulary; i += kLanes) {
          for (int j = 0; j < kLanes; ++j) lanes[j] = z[i + j] > lanes[j] ? z[i + j] : lanes[j];
        }
        for (; i < vocabulary; ++i) lanes[0] = z[i] > lanes[0] ? z[i] : lanes[0];
        float largest = lanes[0];
        for (int j = 1; j < kLanes; ++j) largest = lanes[j] > largest ? lanes[j] : largest;

        const float wanted = z[target] - largest;
        for (int64_t k = 0; k < vocabulary; ++k) z[k] = VectorExp(z[k] - largest);
        const float sum = LaneSum(vocabulary, [&](int64_t k) TESSERA_INLINE { return z[k]; });
        losses[row] = std::log(static_cast<double>(sum)) - wanted;
        if (gradient) {
          const float inverse = 1.0f / sum;
          for (int64_t k = 0; k < vocabulary; ++k) z[k] *= inverse;
          z[target] -= 1.0f;
        }
      }
    });
  });
  double total = 0;
  for (double loss : losses) total += loss;
  return total;
}

struct Result {
  at::Tensor loss;  // a scalar, where the logits are
  at::Tensor d_hidden;
  at::Tensor d_weight;
  at::Tensor d_bias;
};

Result Compute(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
               const at::Tensor& targets, int64_t ignored, int64_t chunk_bytes, bool gradient) {
  const int64_t tokens = hidden.size(0), vocabulary = weight.size(0);
  const int64_t chunk = std::min(std::max<int64_t>(tokens, 1),
                                 std::max(kLeastChunk, chunk_bytes / (vocabulary * int64_t{sizeof(float)})));
  Result result;
  if (gradient) {
    result.d_hidden = at::empty_like(hidden);
    result.d_weight = at::empty_like(weight);
    if (tokens == 0) result.d_weight.zero_();
    if (bias.defined()) result.d_bias = at::zeros_like(bias);
  }
  at::Tensor buffer = at::empty({chunk, vocabulary}, hidden.options());
  double loss = 0;         // of the host's logits
  at::Tensor device_loss;  // of a device's, which is not waited for
  for (int64_t start = 0; start < tokens; start += chunk) {
    const int64_t count = std::min(chunk, tokens - start);
    const at::Tensor h = hidden.narrow(0, start, count);
    at::Tensor logits = buffer.narrow(0, 0, count);
    if (bias.defined()) {
      at::addmm_out(logits, bias, h, weight.t());
    } else {
      at::mm_out(logits, h, weight.t());
    }
    const at::Tensor wanted = targets.narrow(0, start, count);
    if (HasHostLoops(logits)) {
      loss += SoftmaxLoss(logits, wanted.const_data_ptr<int64_t>(), ignored, gradient);
    } else {
      const at::Tensor sum = SoftmaxLossInPlace(logits, wanted, ignored, gradient).sum(at::kDouble);
      device_loss = device_loss.defined() ? device_loss + sum : sum;
    }
    if (!gradient) continue;
    at::Tensor d_h = result.d_hidden.narrow(0, start, count);
    at::mm_out(d_h, logits, weight);
    // beta = 0 in the first chunk: the buffer need not be cleared.
    if (bias.defined()) result.d_bias.add_(logits.sum(0));
    at::addmm_out(result.d_weight, result.d_weight, logits.t(), h, start == 0 ? 0 : 1, 1);
  }
  result.loss = device_loss.defined() ? device_loss.to(hidden.scalar_type())
                                      : at::scalar_tensor(loss, hidden.options());
  return result;
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& weight,
                            const std::optional<at::Tensor>& given_bias, const at::Tensor& targets,
                            int64_t ignored, int64_t chunk_bytes) {
    const at::Tensor bias = given_bias.value_or(at::Tensor());
    Result result = Compute(hidden, weight, bias, targets, ignored, chunk_bytes, true);
    ctx->saved_data["d_hidden"] = result.d_hidden;
    ctx->saved_data["d_weight"] = result.d_weight;
    if (bias.defined()) ctx->saved_data["d_bias"] = result.d_bias;
    return result.loss;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    // Taken out of the context: whoever receives a gradient is then its only owner and can free it.
    at::Tensor d_hidden = ctx->saved_data["d_hidden"].toTensor();
    at::Tensor d_weight = ctx->saved_data["d_weight"].toTensor();
    const auto found = ctx->saved_data.find("d_bias");
    at::Tensor d_bias = found != ctx->saved_data.end() ? found->second.toTensor() : at::Tensor();
    ctx->saved_data.clear();
    TORCH_CHECK(d_hidden.defined(), "ChunkedCrossEntropy: backward ran twice through the same graph");
    // A device is not waited for to see whether there is anything to multiply.
    if (!HasHostLoops(grads[0]) || grads[0].item<float>() != 1.0f) {
      d_hidden.mul_(grads[0]);
      d_weight.mul_(grads[0]);
      if (d_bias.defined()) d_bias.mul_(grads[0]);
    }
    return {d_hidden, d_weight, d_bias, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor ChunkedCrossEntropy(const at::Tensor& hidden_ND, const at::Tensor& weight_VD,
                               const at::Tensor& targets_N, int64_t ignored, int64_t chunk_bytes,
                               const at::Tensor& bias_V) {
  TORCH_CHECK(hidden_ND.dim() == 2 && weight_VD.dim() == 2 && hidden_ND.size(1) == weight_VD.size(1) &&
                  targets_N.numel() == hidden_ND.size(0),
              "ChunkedCrossEntropy: hidden ", hidden_ND.sizes(), ", weight ", weight_VD.sizes(), ", targets ",
              targets_N.sizes());
  TORCH_CHECK(weight_VD.scalar_type() == at::kFloat && targets_N.scalar_type() == at::kLong,
              "ChunkedCrossEntropy takes weights in fp32 and int64 targets");
  const Autocast fp32(false);
  const at::Tensor hidden = hidden_ND.to(at::kFloat).contiguous();
  const at::Tensor targets = targets_N.contiguous();
  // An index outside the weight would be read as memory that is not there.
  const int64_t vocabulary = weight_VD.size(0);
  const int64_t* wanted = HasHostLoops(targets) ? targets.const_data_ptr<int64_t>() : nullptr;
  for (int64_t i = 0; i < targets.numel() && wanted != nullptr; ++i) {
    TORCH_CHECK(wanted[i] == ignored || (wanted[i] >= 0 && wanted[i] < vocabulary),
                "ChunkedCrossEntropy: target ", wanted[i], " outside the vocabulary of ", vocabulary);
  }
  if (at::GradMode::is_enabled() && (hidden.requires_grad() || weight_VD.requires_grad())) {
    const std::optional<at::Tensor> bias =
        bias_V.defined() ? std::optional<at::Tensor>(bias_V) : std::nullopt;
    return CrossEntropyFunction::apply(hidden, weight_VD, bias, targets, ignored, chunk_bytes);
  }
  at::NoGradGuard no_grad;
  const Result result = Compute(hidden, weight_VD, bias_V, targets, ignored, chunk_bytes, false);
  return result.loss;
}

}  // namespace tessera::worker

#include "worker/eval/generate.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tessera::worker {
namespace {

absl::Status Check(const ExportedModel& exported, const std::vector<int32_t>& prompt,
                   const GenerateOptions& options) {
  if (dynamic_cast<const TextGenerator*>(exported.model.get()) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("a model of the family ", exported.model->shape().model, " does not continue texts"));
  }
  if (exported.tokenizer == nullptr) return absl::InvalidArgumentError("the model's folder has no tokenizer");
  if (options.tokens < 0 || options.context < 1 || options.top_k < 0 || !(options.temperature >= 0)) {
    return absl::InvalidArgumentError(
        "tokens, top_k and temperature must not be negative, context must be positive");
  }
  for (int32_t token : prompt) {
    if (token < 0 || token >= exported.model->shape().vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("prompt token ", token,
                                                     " is outside the model's vocabulary of ",
                                                     exported.model->shape().vocab_size));
    }
  }
  return absl::OkStatus();
}

// draw: uniform in [0, 1).
int32_t Sample(std::span<const float> logits, const GenerateOptions& options, double draw) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t kept = options.temperature == 0 ? 1
                      : options.top_k == 0
                          ? order.size()
                          : std::min<size_t>(order.size(), static_cast<size_t>(options.top_k));
  std::partial_sort(
      order.begin(), order.begin() + static_cast<int64_t>(kept), order.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  if (kept == 1) return order[0];
  std::vector<double> weights(kept);
  double total = 0;
  for (size_t i = 0; i < kept; ++i) {
    weights[i] = std::exp((logits[order[i]] - logits[order[0]]) / options.temperature);
    total += weights[i];
  }
  double left = draw * total;
  for (size_t i = 0; i < kept; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

// Follows a text that grows.
class Reader {
 public:
  Reader(const ExportedModel& exported, const TextGenerator& generator, int64_t context)
      : exported_(exported), generator_(generator), context_(context) {}

  // The text begins with what was read last time. -> logits [V] of its next token.
  at::Tensor Read(const std::vector<int32_t>& text) {
    const int64_t end = static_cast<int64_t>(text.size());
    int64_t fresh = end - read_;
    if (state_.positions + fresh > context_) {
      state_ = {};
      fresh = std::min(end, std::max<int64_t>(1, context_ / 2));
    }
    at::Tensor tokens = at::empty({1, fresh}, at::kLong);
    std::copy(text.end() - fresh, text.end(), tokens.mutable_data_ptr<int64_t>());
    read_ = end;
    return generator_.Decode(exported_.weights, tokens, runner_, state_).reshape({-1}).contiguous();
  }

 private:
  const ExportedModel& exported_;
  const TextGenerator& generator_;
  const int64_t context_;
  WholeRunner runner_;
  DecodingState state_;
  int64_t read_ = 0;  // tokens of the text
};

}  // namespace

absl::StatusOr<std::vector<int32_t>> Generate(const ExportedModel& exported, std::vector<int32_t> prompt,
                                              const GenerateOptions& options,
                                              const std::function<void(int32_t)>& on_token) {
  TESSERA_RETURN_IF_ERROR(Check(exported, prompt, options));
  const c10::InferenceMode inference;
  std::mt19937_64 random(options.seed);  // the standard fixes its numbers
  std::vector<int32_t> text = std::move(prompt);
  if (text.empty()) {
    if (exported.tokenizer->begin_token() < 0) {
      return absl::InvalidArgumentError(
          "the prompt is empty, and the tokenizer names no begin token to start from");
    }
    text.push_back(exported.tokenizer->begin_token());
  }
  std::vector<int32_t> generated;
  Reader reader(exported, dynamic_cast<const TextGenerator&>(*exported.model), options.context);
  while (static_cast<int64_t>(generated.size()) < options.tokens) {
    const at::Tensor logits = reader.Read(text);
    const double draw = static_cast<double>(random() >> 11) * 0x1p-53;
    const int32_t next =
        Sample({logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel())}, options, draw);
    if (next == exported.tokenizer->end_token()) break;
    text.push_back(next);
    generated.push_back(next);
    if (on_token) on_token(next);
  }
  return generated;
}

}  // namespace tessera::worker

// LLaMA (Touvron et al., 2023): pre-norm blocks of grouped-query attention with rotary
// positions and a gated feed-forward network. Parameter names are Hugging Face's.
//
// Shapes: B batch, T sequence length, N = B * T, D hidden size, H query heads, G
// key-value heads, K head size, F feed-forward size, V vocabulary. Inside a block H, G
// and F are read from the weights, so a slice of a block runs as it is.
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "worker/models/llama_config.h"
#include "worker/models/model.h"
#include "worker/models/normal.h"
#include "worker/nn/causal_attention.h"
#include "worker/nn/chunked_cross_entropy.h"
#include "worker/nn/linear.h"
#include "worker/nn/rms_norm.h"
#include "worker/nn/rotary.h"
#include "worker/nn/swiglu.h"

namespace tessera::worker {
namespace {

// Order of a block's parameters in ModelShape::parameters.
enum Slot : int { kInputNorm, kQuery, kKey, kValue, kOutput, kPostNorm, kGate, kUp, kDown, kSlots };

// Neurons of the FFN are given out in this many chunks at most: few distinct
// holder sets, yet fine enough for coverage in steps of 1/16.
constexpr int64_t kFfnChunks = 16;

int64_t FfnChunks(int64_t size) {
  int64_t chunks = kFfnChunks;
  while (size % chunks != 0) chunks /= 2;
  return chunks;
}

plan::ModelShape MakeShape(const LlamaConfig& c) {
  using plan::Axis;
  plan::ModelShape shape;
  shape.model = "llama";
  shape.vocab_size = c.vocab_size;
  const int64_t query = c.heads * c.head_size, key = c.key_value_heads * c.head_size;
  shape.parameters.push_back({.name = "model.embed_tokens.weight", .dims = {c.vocab_size, c.hidden_size}});
  for (int block = 0; block < c.layers; ++block) {
    const std::string prefix = absl::StrCat("model.layers.", block);
    const auto add = [&](const char* name, std::vector<int64_t> dims, std::vector<Axis> axes, bool decay) {
      shape.parameters.push_back(
          {absl::StrCat(prefix, ".", name, ".weight"), std::move(dims), block, std::move(axes), decay});
    };
    add("input_layernorm", {c.hidden_size}, {}, false);
    add("self_attn.q_proj", {query, c.hidden_size}, {Axis::kHead, Axis::kNone}, true);
    add("self_attn.k_proj", {key, c.hidden_size}, {Axis::kHead, Axis::kNone}, true);
    add("self_attn.v_proj", {key, c.hidden_size}, {Axis::kHead, Axis::kNone}, true);
    add("self_attn.o_proj", {c.hidden_size, query}, {Axis::kNone, Axis::kHead}, true);
    add("post_attention_layernorm", {c.hidden_size}, {}, false);
    add("mlp.gate_proj", {c.intermediate_size, c.hidden_size}, {Axis::kFfn, Axis::kNone}, true);
    add("mlp.up_proj", {c.intermediate_size, c.hidden_size}, {Axis::kFfn, Axis::kNone}, true);
    add("mlp.down_proj", {c.hidden_size, c.intermediate_size}, {Axis::kNone, Axis::kFfn}, true);
    // Two operations per element of the matrices. The scores of attention grow with the
    // sequence length, which a shape does not know, and are equal in all blocks: left out.
    const double matrices =
        2.0 * query * c.hidden_size + 2.0 * key * c.hidden_size + 3.0 * c.intermediate_size * c.hidden_size;
    shape.blocks.push_back(
        {.name = prefix,
         .maskable = true,
         .flops_per_token = 2 * matrices,
         .axes = {{Axis::kHead, c.key_value_heads}, {Axis::kFfn, FfnChunks(c.intermediate_size)}},
         .kind = 0});
  }
  shape.parameters.push_back({.name = "model.norm.weight", .dims = {c.hidden_size}, .decay = false});
  if (!c.tied) shape.parameters.push_back({.name = "lm_head.weight", .dims = {c.vocab_size, c.hidden_size}});
  shape.base_flops_per_token = 2.0 * c.vocab_size * c.hidden_size;
  return shape;
}

// Appends k and v [B, T, G, K] at `positions` -> all of the text's so far.
std::pair<at::Tensor, at::Tensor> Remember(const at::Tensor& k, const at::Tensor& v, int64_t positions,
                                           DecodingState::Block& block) {
  const int64_t end = positions + k.size(1);
  const auto append = [&](at::Tensor& all, const at::Tensor& next) {
    if (!all.defined() || all.size(1) < end) {
      constexpr int64_t kLeast = 64;  // positions; doubled whenever they do not suffice
      at::Tensor larger =
          at::empty({next.size(0), std::max(kLeast, 2 * end), next.size(2), next.size(3)}, next.options());
      if (positions > 0) larger.narrow(1, 0, positions).copy_(all.narrow(1, 0, positions));
      all = larger;
    }
    all.narrow(1, positions, next.size(1)).copy_(next);
    return all.narrow(1, 0, end);
  };
  at::Tensor keys = append(block.keys, k);
  return {keys, append(block.values, v)};
}

class Llama final : public Model, public TextGenerator {
 public:
  explicit Llama(const LlamaConfig& config) : config_(config), shape_(MakeShape(config)) {
    input_.task = Task::kNextToken;
    input_.classes = input_.vocab_size = config.vocab_size;
  }

  const plan::ModelShape& shape() const override { return shape_; }
  const ModelInput& input() const override { return input_; }

  void Initialize(int parameter, uint64_t seed, at::Tensor& out) const override {
    const plan::Parameter& p = shape_.parameters[parameter];
    at::NoGradGuard no_grad;
    if (p.dims.size() == 1) {
      out.fill_(1);  // norms
      return;
    }
    TORCH_CHECK(
        out.is_contiguous() && out.scalar_type() == at::kFloat && out.sizes() == at::IntArrayRef(p.dims),
        p.name, ": Initialize takes fp32 of the parameter's dims");
    double deviation = config_.initializer_range;
    // Residual branches add up over depth (Radford et al., 2019).
    const int slot = SlotOf(parameter);
    if (slot == kOutput || slot == kDown) deviation /= std::sqrt(2.0 * static_cast<double>(config_.layers));
    FillNormal(seed, p.name, deviation, {out.mutable_data_ptr<float>(), static_cast<size_t>(out.numel())});
  }

  at::Tensor Loss(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    const at::Tensor hidden = Hidden(weights, batch.inputs, runner, nullptr);
    return ChunkedCrossEntropy(hidden.view({-1, config_.hidden_size}), Head(weights),
                               batch.targets.reshape({-1}), kIgnoredTarget);
  }

  at::Tensor Logits(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    return at::matmul(Hidden(weights, batch.inputs, runner, nullptr), Head(weights).t());
  }

  at::Tensor Decode(const Weights& weights, const at::Tensor& tokens, BlockRunner& runner,
                    DecodingState& state) const override {
    const at::NoGradGuard no_grad;
    state.blocks.resize(static_cast<size_t>(config_.layers));
    const at::Tensor hidden = Hidden(weights, tokens, runner, &state);
    state.positions += tokens.size(1);
    return at::matmul(hidden.narrow(1, hidden.size(1) - 1, 1), Head(weights).t());
  }

  std::vector<int> BranchOutputs(int block) const override {
    return {Index(block, kOutput), Index(block, kDown)};
  }

  std::string HuggingFaceConfig() const override { return FormatLlamaConfig(config_); }

 private:
  static int Index(int block, int slot) { return 1 + block * kSlots + slot; }
  int SlotOf(int parameter) const {
    return shape_.parameters[parameter].block == plan::kNoBlock ? -1 : (parameter - 1) % kSlots;
  }
  int FinalNorm() const { return Index(static_cast<int>(config_.layers), 0); }
  const at::Tensor& Head(const Weights& weights) const { return weights[config_.tied ? 0 : FinalNorm() + 1]; }

  // -> final norm's output [B, T, D]. With a state the tokens follow those it has seen.
  at::Tensor Hidden(const Weights& weights, const at::Tensor& tokens, BlockRunner& runner,
                    DecodingState* state) const {
    TORCH_CHECK(weights.size() == shape_.parameters.size(), "weights: ", weights.size(), " tensors for ",
                shape_.parameters.size(), " parameters");
    const RotaryTable rotary =
        Rotary(state != nullptr ? state->positions : 0, tokens.size(1), tokens.device());
    at::Tensor x = at::embedding(weights[0], tokens);
    for (int block = 0; block < config_.layers; ++block) {
      x = runner.Run(block, x,
                     [this, &weights, rotary, block, state](const at::Tensor& input, double branch_scale) {
                       return Block(weights, block, rotary, input, branch_scale, state);
                     });
    }
    return RmsNorm(x, weights[FinalNorm()], config_.rms_norm_eps);
  }

  at::Tensor Block(const Weights& weights, int block, const RotaryTable& rotary, const at::Tensor& x_BTD,
                   double branch_scale, DecodingState* state) const {
    const auto w = [&](Slot slot) -> const at::Tensor& { return weights[Index(block, slot)]; };
    const at::Tensor x_ND = x_BTD.reshape({-1, config_.hidden_size});
    DecodingState::Block* past = state != nullptr ? &state->blocks[block] : nullptr;
    const int64_t positions = state != nullptr ? state->positions : 0;
    const at::Tensor attended_ND = Attention(w, rotary, x_ND, x_BTD.size(0), branch_scale, past, positions);
    if (w(kGate).size(0) == 0) return attended_ND.view(x_BTD.sizes());  // a slice without neurons
    const at::Tensor normed = ForProducts(RmsNorm(attended_ND, w(kPostNorm), config_.rms_norm_eps));
    at::Tensor gate = Linear(normed, w(kGate));
    at::Tensor up = Linear(normed, w(kUp));
    return SwiGluDown(attended_ND, gate, up, w(kDown), branch_scale).view(x_BTD.sizes());
  }

  // x + branch_scale * attention(norm(x)), [N, D]. With a past, its keys and values are seen as well.
  template <typename WeightOf>
  at::Tensor Attention(const WeightOf& w, const RotaryTable& rotary, const at::Tensor& x_ND, int64_t batch,
                       double branch_scale, DecodingState::Block* past, int64_t positions) const {
    if (w(kQuery).size(0) == 0) return x_ND;  // a slice without heads
    const int64_t length = x_ND.size(0) / batch;
    const at::Tensor normed = ForProducts(RmsNorm(x_ND, w(kInputNorm), config_.rms_norm_eps));
    const auto project = [&](Slot slot) {
      return Linear(normed, w(slot)).view({batch, length, -1, config_.head_size});
    };
    const at::Tensor q = ApplyRotary(project(kQuery), rotary);
    at::Tensor k = ApplyRotary(project(kKey), rotary);
    at::Tensor v = project(kValue);
    if (past != nullptr) std::tie(k, v) = Remember(k, v, positions, *past);
    const at::Tensor mixed = CausalAttention(q, k, v).reshape({x_ND.size(0), -1});
    return AddProduct(x_ND, mixed, w(kOutput), branch_scale);
  }

  // Angles of `length` positions from `first`; kept, as most calls ask for the same.
  RotaryTable Rotary(int64_t first, int64_t length, at::Device device) const {
    absl::MutexLock lock(&mutex_);
    const int64_t end = first + length, known = rotary_.cosine.defined() ? rotary_.cosine.size(0) : 0;
    if (known < end) {
      // A text that grows by a token at a time does not ask for a new table each time.
      rotary_ =
          MakeRotaryTable(first > 0 ? std::max(end, 2 * known) : end, config_.head_size, config_.rope_theta);
    }
    if (rotary_.cosine.device() != device) rotary_ = {rotary_.cosine.to(device), rotary_.sine.to(device)};
    if (first == 0) return rotary_;
    return {rotary_.cosine.narrow(0, first, length), rotary_.sine.narrow(0, first, length)};
  }

  const LlamaConfig config_;
  const plan::ModelShape shape_;
  ModelInput input_;
  mutable absl::Mutex mutex_;
  mutable RotaryTable rotary_ ABSL_GUARDED_BY(mutex_);
};

class LlamaFamily final : public ModelFamily {
 public:
  std::string name() const override { return "llama"; }
  std::vector<std::string> presets() const override { return LlamaPresets(); }
  absl::StatusOr<std::unique_ptr<Model>> Make(const ModelConfig& config) const override {
    TESSERA_ASSIGN_OR_RETURN(LlamaConfig llama, config.config_json.empty()
                                                    ? LlamaPreset(config.preset)
                                                    : ParseLlamaConfig(config.config_json));
    if (config.vocab_size < 0) return absl::InvalidArgumentError("model.vocab_size must be positive");
    if (config.vocab_size > 0) llama.vocab_size = config.vocab_size;
    return std::make_unique<Llama>(llama);
  }
};

TESSERA_REGISTER_MODEL(LlamaFamily);

}  // namespace
}  // namespace tessera::worker

// BERT (Devlin et al., 2019): post-norm encoder with learned positions, and a head that tells masked tokens
// or classifies texts. Parameter names are Hugging Face's; BertModel alone is what both heads share.
//
// Shapes: B batch, T sequence length, N = B * T, D hidden size, H heads, K head size, V vocabulary. Inside a
// block heads and neurons are read from the weights, so a slice of a block runs as it is.
#include <torch/types.h>

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/models/classes.h"
#include "worker/models/config_fields.h"
#include "worker/models/model.h"
#include "worker/models/preset_family.h"
#include "worker/models/text_encoder.h"
#include "worker/nn/chunked_cross_entropy.h"
#include "worker/nn/linear.h"

namespace tessera::worker {
namespace {

struct BertConfig {
  int64_t vocab_size = 30522, hidden = 768, intermediate = 3072, layers = 12, heads = 12, positions = 512,
          types = 2;
  double epsilon = 1e-12, initializer_range = 0.02;
  int64_t padding = 0;  // token whose embedding is not trained as an input; -1: none
  int64_t classes = 0;  // 0: a head for masked tokens
};

const std::vector<std::pair<std::string, BertConfig>>& AllPresets() {
  static const auto& presets = *new std::vector<std::pair<std::string, BertConfig>>{
      {"bert-base", {}},  // 109,482,240 parameters with the pooler and without a head
      {"bert-base-classifier", {.classes = 2}},
      {"bert-mini", {.hidden = 256, .intermediate = 1024, .layers = 4, .heads = 4}},
      {"bert-mini-classifier", {.hidden = 256, .intermediate = 1024, .layers = 4, .heads = 4, .classes = 2}},
  };
  return presets;
}

absl::StatusOr<BertConfig> ParseConfig(const std::string& text) {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json object, ParseConfigObject(text));
  ConfigFields fields(object);
  BertConfig c;
  c.vocab_size = fields.Integer("vocab_size", 0);
  c.hidden = fields.Integer("hidden_size", 0);
  c.intermediate = fields.Integer("intermediate_size", 0);
  c.layers = fields.Integer("num_hidden_layers", 0);
  c.heads = fields.Integer("num_attention_heads", 0);
  c.positions = fields.Integer("max_position_embeddings", c.positions);
  c.types = fields.Integer("type_vocab_size", c.types);
  c.epsilon = fields.Number("layer_norm_eps", c.epsilon);
  c.initializer_range = fields.Number("initializer_range", c.initializer_range);
  if (const auto* padding = fields.Find("pad_token_id"); padding == nullptr) {
    c.padding = object.contains("pad_token_id") ? -1 : c.padding;
  } else if (padding->is_number_integer() && *padding >= 0 && *padding < c.vocab_size) {
    c.padding = padding->get<int64_t>();
  } else {
    fields.status.Update(InvalidField("pad_token_id", absl::StrCat(padding->dump(), " is no token")));
  }
  fields.Only("hidden_act", "gelu");
  fields.Only("position_embedding_type", "absolute");
  fields.Only("is_decoder", false);
  fields.Only("add_cross_attention", false);
  fields.Only("tie_word_embeddings", true);
  TESSERA_RETURN_IF_ERROR(fields.status);
  if (c.hidden % c.heads != 0) {
    return InvalidField("num_attention_heads",
                        absl::StrCat(c.heads, " does not divide hidden_size ", c.hidden));
  }
  const auto* architectures = fields.Find("architectures");
  if (architectures != nullptr && architectures->dump() == R"(["BertForSequenceClassification"])") {
    const auto* labels = fields.Find("id2label");
    c.classes = labels != nullptr && labels->is_object() ? static_cast<int64_t>(labels->size()) : 2;
  }
  return c;
}

std::string FormatConfig(const BertConfig& c) {
  nlohmann::ordered_json object;
  object["architectures"] = {c.classes > 0 ? "BertForSequenceClassification" : "BertForMaskedLM"};
  object["model_type"] = "bert";
  object["vocab_size"] = c.vocab_size;
  object["hidden_size"] = c.hidden;
  object["intermediate_size"] = c.intermediate;
  object["num_hidden_layers"] = c.layers;
  object["num_attention_heads"] = c.heads;
  object["max_position_embeddings"] = c.positions;
  object["type_vocab_size"] = c.types;
  object["layer_norm_eps"] = c.epsilon;
  object["initializer_range"] = c.initializer_range;
  object["pad_token_id"] = c.padding < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(c.padding);
  object["hidden_act"] = "gelu";
  object["tie_word_embeddings"] = true;
  // Training here is without dropout; whoever goes on elsewhere may choose.
  object["hidden_dropout_prob"] = 0.0;
  object["attention_probs_dropout_prob"] = 0.0;
  AddLabels(c.classes, object);
  return object.dump(2) + "\n";
}

// Order of a block's parameters; each weight's bias follows it.
enum Slot : int {
  kQuery = 0,
  kKey = 2,
  kValue = 4,
  kOutput = 6,
  kAttentionNorm = 8,
  kUp = 10,
  kDown = 12,
  kOutputNorm = 14,
  kSlots = 16,
};
enum Embedding : int { kWords, kPositions, kTypes, kEmbeddingNorm, kFirstBlock = 5 };

constexpr int64_t kFfnChunks = 16;

class Bert final : public Model, public TextEncoder {
 public:
  explicit Bert(const BertConfig& config) : config_(config) {
    Build();
    input_ = {.task = config.classes > 0 ? Task::kTextClass : Task::kMaskedToken,
              .classes = config.classes > 0 ? config.classes : config.vocab_size,
              .vocab_size = config.vocab_size,
              .max_length = config.positions};
  }

  const plan::ModelShape& shape() const override { return shape_; }
  const ModelInput& input() const override { return input_; }

  void Initialize(int parameter, uint64_t seed, at::Tensor& out) const override {
    const plan::Parameter& p = shape_.parameters[parameter];
    InitializeParameter(p, seed, absl::EndsWith(p.name, "LayerNorm.weight") ? 1 : 0,
                        config_.initializer_range, out);
  }

  at::Tensor Loss(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    if (config_.classes > 0) {
      return ClassLoss(Logits(weights, batch, runner), batch);
    }
    // Only a part of the tokens is to be told: the others do not go through the head.
    const at::Tensor targets = batch.targets.reshape({-1});
    const at::Tensor told = targets.ne(kIgnoredTarget).nonzero().squeeze(1);
    const at::Tensor hidden =
        Encode(weights, batch, runner).reshape({-1, config_.hidden}).index_select(0, told);
    return ChunkedCrossEntropy(Transform(weights, hidden), weights[kWords], targets.index_select(0, told),
                               kIgnoredTarget, kLogitsChunkBytes, weights[Head()]);
  }

  at::Tensor Logits(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    const at::Tensor hidden = Encode(weights, batch, runner);
    if (config_.classes == 0) return Linear(Transform(weights, hidden), weights[kWords], weights[Head()]);
    const at::Tensor pooled = at::tanh(Linear(hidden.select(1, 0), weights[Head()], weights[Head() + 1]));
    return Linear(pooled, weights[Head() + 2], weights[Head() + 3]);
  }

  at::Tensor Encode(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    const int64_t length = batch.inputs.size(1);
    TORCH_CHECK(length <= config_.positions, "BERT: a text of ", length, " tokens; it has ",
                config_.positions, " positions");
    at::Tensor x = at::embedding(weights[kWords], batch.inputs, config_.padding) +
                   weights[kPositions].narrow(0, 0, length) + weights[kTypes][0];
    x = Norm(x, weights, kEmbeddingNorm);
    std::optional<at::Tensor> seen;  // [B, 1, 1, T]
    if (batch.padding.defined()) seen = batch.padding.logical_not().unsqueeze(1).unsqueeze(1);
    for (int block = 0; block < config_.layers; ++block) {
      x = runner.Run(block, x, [this, &weights, block, seen](const at::Tensor& input, double branch_scale) {
        return Block(weights, block, seen, input, branch_scale);
      });
    }
    return x;
  }

  std::vector<int> BranchOutputs(int block) const override {
    const int first = First(block);
    return {first + kOutput, first + kOutput + 1, first + kDown, first + kDown + 1};
  }

  std::string HuggingFaceConfig() const override { return FormatConfig(config_); }

 private:
  static int First(int block) { return kFirstBlock + block * kSlots; }
  int Head() const { return First(static_cast<int>(config_.layers)); }

  void Add(const std::string& name, std::vector<int64_t> dims, int block, std::vector<plan::Axis> axes = {}) {
    const bool decay = dims.size() > 1;
    shape_.parameters.push_back({name, std::move(dims), block, std::move(axes), decay});
  }
  void AddPair(const std::string& name, std::vector<int64_t> dims, int block,
               std::vector<plan::Axis> axes = {}) {
    const int64_t out = dims[0];
    const std::vector<plan::Axis> bias = axes.empty() ? axes : std::vector<plan::Axis>{axes[0]};
    Add(name + ".weight", std::move(dims), block, std::move(axes));
    Add(name + ".bias", {out}, block, bias);
  }

  void Build() {
    using plan::Axis;
    const BertConfig& c = config_;
    shape_.model = "bert";
    shape_.vocab_size = c.vocab_size;
    Add("bert.embeddings.word_embeddings.weight", {c.vocab_size, c.hidden}, plan::kNoBlock);
    Add("bert.embeddings.position_embeddings.weight", {c.positions, c.hidden}, plan::kNoBlock);
    Add("bert.embeddings.token_type_embeddings.weight", {c.types, c.hidden}, plan::kNoBlock);
    AddPair("bert.embeddings.LayerNorm", {c.hidden}, plan::kNoBlock);
    int64_t chunks = kFfnChunks;
    while (c.intermediate % chunks != 0) chunks /= 2;
    for (int block = 0; block < c.layers; ++block) {
      const std::string name = absl::StrCat("bert.encoder.layer.", block);
      for (const char* part : {"query", "key", "value"}) {
        AddPair(absl::StrCat(name, ".attention.self.", part), {c.hidden, c.hidden}, block,
                {Axis::kHead, Axis::kNone});
      }
      AddPair(name + ".attention.output.dense", {c.hidden, c.hidden}, block, {Axis::kNone, Axis::kHead});
      AddPair(name + ".attention.output.LayerNorm", {c.hidden}, block);
      AddPair(name + ".intermediate.dense", {c.intermediate, c.hidden}, block, {Axis::kFfn, Axis::kNone});
      AddPair(name + ".output.dense", {c.hidden, c.intermediate}, block, {Axis::kNone, Axis::kFfn});
      AddPair(name + ".output.LayerNorm", {c.hidden}, block);
      // As in LLaMA, the scores of attention are left out.
      const double matrices =
          static_cast<double>(c.hidden) * static_cast<double>(4 * c.hidden + 2 * c.intermediate);
      shape_.blocks.push_back({.name = name,
                               .flops_per_token = 2 * matrices,
                               .axes = {{Axis::kHead, c.heads}, {Axis::kFfn, chunks}},
                               .kind = 0});
    }
    if (c.classes > 0) {
      AddPair("bert.pooler.dense", {c.hidden, c.hidden}, plan::kNoBlock);
      AddPair("classifier", {c.classes, c.hidden}, plan::kNoBlock);
    } else {
      Add("cls.predictions.bias", {c.vocab_size}, plan::kNoBlock);
      AddPair("cls.predictions.transform.dense", {c.hidden, c.hidden}, plan::kNoBlock);
      AddPair("cls.predictions.transform.LayerNorm", {c.hidden}, plan::kNoBlock);
      constexpr double kTold = 0.15;  // share of the tokens that go through the head
      shape_.base_flops_per_token = kTold * 2.0 * static_cast<double>(c.hidden * (c.vocab_size + c.hidden));
    }
  }

  at::Tensor Norm(const at::Tensor& x, const Weights& weights, int weight) const {
    return at::layer_norm(x, {config_.hidden}, weights[weight], weights[weight + 1], config_.epsilon);
  }

  // In front of the decoder of masked tokens.
  at::Tensor Transform(const Weights& weights, const at::Tensor& hidden) const {
    return Norm(at::gelu(Linear(hidden, weights[Head() + 1], weights[Head() + 2])), weights, Head() + 3);
  }

  at::Tensor Block(const Weights& weights, int block, const std::optional<at::Tensor>& seen,
                   const at::Tensor& x_BTD, double branch_scale) const {
    const int first = First(block);
    const auto linear = [&](const at::Tensor& x, int slot) {
      return Linear(x, weights[first + slot], weights[first + slot + 1]);
    };
    const int64_t head_size = config_.hidden / config_.heads;
    const at::Tensor input = ForProducts(x_BTD);
    const auto project = [&](int slot) {  // [B, H, T, K]
      return linear(input, slot).view({x_BTD.size(0), x_BTD.size(1), -1, head_size}).transpose(1, 2);
    };
    const at::Tensor mixed =
        at::scaled_dot_product_attention(project(kQuery), project(kKey), project(kValue), seen)
            .transpose(1, 2)
            .reshape({x_BTD.size(0), x_BTD.size(1), -1});
    const at::Tensor x =
        Norm(at::add(x_BTD, linear(mixed, kOutput), branch_scale), weights, first + kAttentionNorm);
    const at::Tensor down = linear(at::gelu(linear(x, kUp)), kDown);
    return Norm(at::add(x, down, branch_scale), weights, first + kOutputNorm);
  }

  const BertConfig config_;
  plan::ModelShape shape_;
  ModelInput input_;
};

struct BertFamily final : PresetFamily<Bert, BertConfig> {
  BertFamily() : PresetFamily("bert", AllPresets(), ParseConfig) {}
};

TESSERA_REGISTER_MODEL(BertFamily);

}  // namespace
}  // namespace tessera::worker

#include "worker/models/llama_config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/models/config_fields.h"

namespace tessera::worker {
namespace {

using nlohmann::json;

// Vocabulary of the byte-level tokenizer: 256 bytes and 4 special tokens.
constexpr int64_t kByteVocabulary = 260;

const std::vector<std::pair<std::string, LlamaConfig>>& Presets() {
  static const auto& presets = *new std::vector<std::pair<std::string, LlamaConfig>>{
      {"llama-1m",
       {.hidden_size = 128,
        .intermediate_size = 384,
        .layers = 4,
        .heads = 4,
        .key_value_heads = 2,
        .head_size = 32,
        .vocab_size = kByteVocabulary}},
      // 8.5 million parameters, eight blocks: the model of the main job.
      {"llama-8m",
       {.hidden_size = 256,
        .intermediate_size = 1024,
        .layers = 8,
        .heads = 4,
        .key_value_heads = 4,
        .head_size = 64,
        .vocab_size = kByteVocabulary}},
      // 134,105,856 parameters.
      {"llama-134m",
       {.hidden_size = 768,
        .intermediate_size = 2048,
        .layers = 12,
        .heads = 12,
        .key_value_heads = 12,
        .head_size = 64,
        .vocab_size = 32000}},
      // With its first and last block always on, 80 % of the parameters are maskable.
      {"llama-500m",
       {.hidden_size = 1024,
        .intermediate_size = 4096,
        .layers = 26,
        .heads = 16,
        .key_value_heads = 16,
        .head_size = 64,
        .vocab_size = 32000}},
      // With every block maskable, 90 % of the parameters are.
      {"llama-1b",
       {.hidden_size = 1536,
        .intermediate_size = 4096,
        .layers = 32,
        .heads = 24,
        .key_value_heads = 24,
        .head_size = 64,
        .vocab_size = 32000}},
  };
  return presets;
}

// Settings that change the arithmetic and that this model does not have.
absl::Status CheckSupported(ConfigFields& fields) {
  for (const char* name : {"attention_bias", "mlp_bias"}) {
    if (const json* value = fields.Find(name); value != nullptr && *value != false)
      return UnsupportedField(name, *value);
  }
  if (const json* value = fields.Find("hidden_act"); value != nullptr && *value != "silu") {
    return UnsupportedField("hidden_act", *value);
  }
  if (const json* value = fields.Find("rope_scaling"); value != nullptr)
    return UnsupportedField("rope_scaling", *value);
  if (const json* value = fields.Find("attention_dropout"); value != nullptr && *value != 0) {
    return UnsupportedField("attention_dropout", *value);
  }
  if (const json* value = fields.Find("quantization_config"); value != nullptr) {
    return UnsupportedField("quantization_config", *value);
  }
  if (const json* value = fields.Find("rope_parameters"); value != nullptr) {  // transformers 5
    const auto type = value->is_object() ? value->value("rope_type", json("default")) : *value;
    if (type != "default") return UnsupportedField("rope_parameters.rope_type", type);
    if (value->value("partial_rotary_factor", json(1.0)) != 1.0) {
      return UnsupportedField("rope_parameters.partial_rotary_factor", (*value)["partial_rotary_factor"]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const LlamaConfig& config) {
  if (config.heads % config.key_value_heads != 0) {
    return InvalidField(
        "num_key_value_heads",
        absl::StrCat(config.key_value_heads, " does not divide num_attention_heads ", config.heads));
  }
  if (config.head_size % 2 != 0) return InvalidField("head_dim", absl::StrCat(config.head_size, " is odd"));
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>& LlamaPresets() {
  static const auto& names = *[] {
    auto* list = new std::vector<std::string>;
    for (const auto& [name, config] : Presets()) list->push_back(name);
    return list;
  }();
  return names;
}

absl::StatusOr<LlamaConfig> LlamaPreset(const std::string& name) {
  for (const auto& [preset, config] : Presets()) {
    if (preset == name) return config;
  }
  return absl::NotFoundError(absl::StrCat("no LLaMA preset '", name, "'"));
}

absl::StatusOr<LlamaConfig> ParseLlamaConfig(const std::string& text) {
  TESSERA_ASSIGN_OR_RETURN(const json object, ParseConfigObject(text));
  ConfigFields fields(object);
  TESSERA_RETURN_IF_ERROR(CheckSupported(fields));
  LlamaConfig config;
  config.hidden_size = fields.Integer("hidden_size", 0);
  config.intermediate_size = fields.Integer("intermediate_size", 0);
  config.layers = fields.Integer("num_hidden_layers", 0);
  config.heads = fields.Integer("num_attention_heads", 0);
  config.vocab_size = fields.Integer("vocab_size", 0);
  TESSERA_RETURN_IF_ERROR(fields.status);
  config.key_value_heads = fields.Integer("num_key_value_heads", config.heads);
  if (fields.Find("head_dim") == nullptr && config.hidden_size % config.heads != 0) {
    return InvalidField("num_attention_heads",
                        absl::StrCat(config.heads, " does not divide hidden_size ", config.hidden_size));
  }
  config.head_size = fields.Integer("head_dim", std::max<int64_t>(1, config.hidden_size / config.heads));
  config.max_positions = fields.Integer("max_position_embeddings", config.max_positions);
  config.rms_norm_eps = fields.Number("rms_norm_eps", 1e-6);  // the default of Hugging Face
  config.rope_theta = fields.Number("rope_theta", 10000);
  if (const json* rope = fields.Find("rope_parameters"); rope != nullptr) {
    ConfigFields inner(*rope);
    config.rope_theta = inner.Number("rope_theta", config.rope_theta);
    TESSERA_RETURN_IF_ERROR(inner.status);
  }
  config.initializer_range = fields.Number("initializer_range", 0.02);
  config.tied = fields.Flag("tie_word_embeddings", false);
  TESSERA_RETURN_IF_ERROR(fields.status);
  TESSERA_RETURN_IF_ERROR(CheckShape(config));
  return config;
}

std::string FormatLlamaConfig(const LlamaConfig& config) {
  nlohmann::ordered_json object;
  object["architectures"] = {"LlamaForCausalLM"};
  object["model_type"] = "llama";
  object["hidden_size"] = config.hidden_size;
  object["intermediate_size"] = config.intermediate_size;
  object["num_hidden_layers"] = config.layers;
  object["num_attention_heads"] = config.heads;
  object["num_key_value_heads"] = config.key_value_heads;
  object["head_dim"] = config.head_size;
  object["vocab_size"] = config.vocab_size;
  object["max_position_embeddings"] = config.max_positions;
  object["rms_norm_eps"] = config.rms_norm_eps;
  object["rope_theta"] = config.rope_theta;
  object["initializer_range"] = config.initializer_range;
  object["tie_word_embeddings"] = config.tied;
  object["hidden_act"] = "silu";
  object["attention_bias"] = false;
  object["mlp_bias"] = false;
  object["torch_dtype"] = "float32";
  return object.dump(2) + "\n";
}

}  // namespace tessera::worker

// What distinguishes one LLaMA from another, and its Hugging Face config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::worker {

struct LlamaConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t key_value_heads = 0;
  int64_t head_size = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 2048;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000;
  double initializer_range = 0.02;
  bool tied = false;
};

// llama-1m, llama-8m, llama-134m, llama-500m, llama-1b.
const std::vector<std::string>& LlamaPresets();

// NotFound: no such preset.
absl::StatusOr<LlamaConfig> LlamaPreset(const std::string& name);

// InvalidArgument: a field is missing, of the wrong type or out of range;
// Unimplemented: a field asks for something this model does not do. Both name the field.
absl::StatusOr<LlamaConfig> ParseLlamaConfig(const std::string& json);
std::string FormatLlamaConfig(const LlamaConfig& config);

}  // namespace tessera::worker

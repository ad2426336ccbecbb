#include "worker/models/llama_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/status.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

nlohmann::json Valid() {
  return {{"model_type", "llama"},       {"hidden_size", 64},         {"intermediate_size", 128},
          {"num_hidden_layers", 2},      {"num_attention_heads", 4},  {"num_key_value_heads", 2},
          {"vocab_size", 100},           {"rms_norm_eps", 1e-5},      {"rope_theta", 20000.0},
          {"tie_word_embeddings", true}, {"initializer_range", 0.01}, {"max_position_embeddings", 512}};
}

TEST(LlamaConfig, ReadsWhatItWrites) {
  const auto config = ParseLlamaConfig(Valid().dump());
  ASSERT_OK(config);
  const auto again = ParseLlamaConfig(FormatLlamaConfig(*config));
  ASSERT_OK(again);
  EXPECT_EQ(FormatLlamaConfig(*config), FormatLlamaConfig(*again));
  EXPECT_EQ(again->key_value_heads, 2);
  EXPECT_EQ(again->head_size, 16);
  EXPECT_EQ(again->rope_theta, 20000);
  EXPECT_TRUE(again->tied);
}

TEST(LlamaConfig, ReadsTheRotaryBaseWhereTransformers5WritesIt) {
  auto json = Valid();
  json.erase("rope_theta");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  EXPECT_EQ(ParseLlamaConfig(json.dump())->rope_theta, 500000);
}

struct Complaint {
  const char* field;
  nlohmann::json value;  // null: removed
  absl::StatusCode code;
};

TEST(LlamaConfig, NamesTheFieldItCannotFollow) {
  using enum absl::StatusCode;
  const std::vector<Complaint> complaints = {
      {"hidden_size", nullptr, kInvalidArgument},
      {"hidden_size", -4, kInvalidArgument},
      {"vocab_size", "many", kInvalidArgument},
      {"num_attention_heads", 5, kInvalidArgument},
      {"num_key_value_heads", 3, kInvalidArgument},
      {"head_dim", 7, kInvalidArgument},
      {"rms_norm_eps", 0, kInvalidArgument},
      {"tie_word_embeddings", 1, kInvalidArgument},
      {"rope_scaling", {{"rope_type", "llama3"}}, kUnimplemented},
      {"rope_parameters", {{"rope_type", "yarn"}}, kUnimplemented},
      {"attention_bias", true, kUnimplemented},
      {"mlp_bias", true, kUnimplemented},
      {"hidden_act", "gelu", kUnimplemented},
      {"attention_dropout", 0.1, kUnimplemented},
      {"quantization_config", {{"bits", 4}}, kUnimplemented},
  };
  for (const Complaint& complaint : complaints) {
    auto json = Valid();
    json[complaint.field] = complaint.value;
    const auto config = ParseLlamaConfig(json.dump());
    EXPECT_EQ(config.status().code(), complaint.code) << complaint.field;
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(complaint.field));
  }
}

}  // namespace
}  // namespace tessera::worker

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/status.h"
#include "worker/checkpoint/hf_weights.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/data/shard_writer.h"
#include "worker/data/text_file.h"
#include "worker/eval/commands.h"
#include "worker/eval/evaluate.h"
#include "worker/eval/export_model.h"
#include "worker/eval/generate.h"
#include "worker/eval/job_model.h"
#include "worker/eval/text_stream.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A folder with a byte tokenizer, a model of one million parameters and token shards.
class Eval : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("eval-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "data");
    ASSERT_OK(MakeByteTokenizer()->Save(Path("data")));
    ShardWriter writer(Path("data"), "validation", kByteShard, 1 << 20);
    std::vector<int32_t> tokens;
    for (int i = 0; i < 4000; ++i) tokens.push_back("the quick brown fox\n"[i % 20]);
    ASSERT_OK(writer.Append(tokens));
    ASSERT_OK(writer.Finish());
    model_ = *MakeModel({.preset = "llama-1m"});
    source_.parameter = [this](int parameter) -> absl::StatusOr<at::Tensor> {
      at::Tensor tensor = at::empty(model_->shape().parameters[parameter].dims);
      model_->Initialize(parameter, 1, tensor);
      return tensor;
    };
    source_.tokenizer = Path("data");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ / name; }

  std::filesystem::path folder_;
  std::unique_ptr<Model> model_;
  ExportSource source_;
};

TEST_F(Eval, AnExportReadsBackAsTheSameModel) {
  ASSERT_OK(ExportModel(*model_, source_, Path("out")));
  const auto exported = OpenExportedModel(Path("out"));
  ASSERT_OK(exported);
  ASSERT_NE(exported->tokenizer, nullptr);
  EXPECT_EQ(exported->model->shape().Fingerprint(), model_->shape().Fingerprint());
  for (size_t i = 0; i < exported->weights.size(); ++i) {
    EXPECT_TRUE(at::equal(exported->weights[i], *source_.parameter(static_cast<int>(i))));
  }
  const auto config = nlohmann::json::parse(*ReadTextFile(Path("out/config.json")));
  EXPECT_EQ(config["bos_token_id"], 256);
  EXPECT_EQ(config["eos_token_id"], 257);
}

TEST_F(Eval, TheEvaluationScaleIsFoldedIntoTheBranchesOfItsBlock) {
  source_.scale = [](int block) { return block == 1 ? 0.5 : 1.0; };
  ASSERT_OK(ExportModel(*model_, source_, Path("out")));
  const auto exported = *OpenExportedModel(Path("out"));
  const auto outputs = model_->BranchOutputs(1);
  for (size_t i = 0; i < exported.weights.size(); ++i) {
    const bool scaled = std::find(outputs.begin(), outputs.end(), static_cast<int>(i)) != outputs.end();
    EXPECT_TRUE(
        at::equal(exported.weights[i], *source_.parameter(static_cast<int>(i)) * (scaled ? 0.5 : 1.0)));
  }
}

TEST_F(Eval, AnExportReplacesOnlyAnExportAndOnlyWhenAsked) {
  ASSERT_OK(ExportModel(*model_, source_, Path("out")));
  EXPECT_EQ(ExportModel(*model_, source_, Path("out")).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_OK(ExportModel(*model_, source_, Path("out"), /*overwrite=*/true));
  EXPECT_EQ(ExportModel(*model_, source_, Path("data"), true).code(), absl::StatusCode::kAlreadyExists);
  source_.parameter = [](int) { return absl::DataLossError("gone"); };
  EXPECT_EQ(ExportModel(*model_, source_, Path("out"), true).code(), absl::StatusCode::kDataLoss);
  EXPECT_OK(OpenExportedModel(Path("out")));  // the earlier one is untouched
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("partial")));
  }
}

TEST_F(Eval, WeightsThatDoNotFitAreAllNamedAtOnce) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& p : model_->shape().parameters) tensors.emplace_back(p.name, at::zeros(p.dims));
  tensors[0].second = at::zeros({3, 3});
  tensors[5].first = "model.layers.0.surprise";
  ASSERT_OK(WriteSafetensors(Path("w.safetensors"), tensors));
  const auto status = HuggingFaceWeights::Open(Path("w.safetensors"), model_->shape()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* part :
       {"model.embed_tokens.weight is [3, 3]", "missing model.layers.0.self_attn.o_proj.weight",
        "unexpected model.layers.0.surprise"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST_F(Eval, WeightsInSeveralFilesAreFoundByTheirIndex) {
  std::vector<std::pair<std::string, at::Tensor>> halves[2];
  nlohmann::json map;
  for (size_t i = 0; i < model_->shape().parameters.size(); ++i) {
    const auto& p = model_->shape().parameters[i];
    halves[i % 2].emplace_back(p.name, at::full(p.dims, static_cast<double>(i)));
    map[p.name] = "part-" + std::to_string(i % 2) + ".safetensors";
  }
  for (int half : {0, 1}) {
    ASSERT_OK(WriteSafetensors(Path("part-" + std::to_string(half) + ".safetensors"), halves[half]));
  }
  ASSERT_OK(WriteTextFile(Path("model.safetensors.index.json"), nlohmann::json{{"weight_map", map}}.dump()));
  const auto weights = HuggingFaceWeights::Open(folder_, model_->shape());
  ASSERT_OK(weights);
  EXPECT_EQ((*weights)->Read(7)->max().item<float>(), 7);
}

TEST_F(Eval, AnUntrainedModelLosesAsMuchAsAGuess) {
  ASSERT_OK(ExportModel(*model_, source_, Path("out")));
  const auto exported = *OpenExportedModel(Path("out"));
  const auto data = *OpenTokenDataset(Path("data/validation-*.bin"), DataPart::kValidation);
  const auto result = Evaluate(exported, *data, {.tokens = 1000, .batch = 3, .sequence_length = 64});
  ASSERT_OK(result);
  EXPECT_EQ(result->tokens, 16 * 64);
  EXPECT_NEAR(result->loss, std::log(260.0), 0.2);
  EXPECT_NEAR(result->perplexity, std::exp(result->loss), 1e-9);
  EXPECT_NEAR(result->bits_per_byte, result->loss / std::log(2.0), 1e-9);
  EXPECT_EQ(Evaluate(exported, *data, {.sequence_length = 4000}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(Eval, GenerationIsAFunctionOfTheSeed) {
  ASSERT_OK(ExportModel(*model_, source_, Path("out")));
  const auto exported = *OpenExportedModel(Path("out"));
  const auto prompt = exported.tokenizer->Encode("the ");
  const GenerateOptions options{.tokens = 12, .temperature = 1, .top_k = 0, .seed = 4, .context = 8};
  const auto first = *Generate(exported, prompt, options), second = *Generate(exported, prompt, options);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first.size(), 12u);
  GenerateOptions other = options;
  other.seed = 5;
  EXPECT_NE(first, *Generate(exported, prompt, other));
  other.temperature = 0;
  EXPECT_EQ(*Generate(exported, {}, other), *Generate(exported, {}, other));
  other.context = 0;
  EXPECT_FALSE(Generate(exported, prompt, other).ok());
}

TEST_F(Eval, ATextGeneratedFromWhatIsRememberedIsThatOfTheWholeTextReadAgainEachTime) {
  ASSERT_OK(ExportModel(*model_, source_, Path("out")));
  const auto exported = *OpenExportedModel(Path("out"));
  const auto prompt = exported.tokenizer->Encode("the quick");
  std::vector<int32_t> text = prompt;
  WholeRunner runner;
  for (int i = 0; i < 30; ++i) {
    const at::Tensor tokens = at::tensor(std::vector<int64_t>(text.begin(), text.end())).unsqueeze(0);
    text.push_back(
        static_cast<int32_t>(exported.model->Logits(exported.weights, {.inputs = tokens}, runner)[0][-1]
                                 .argmax()
                                 .item<int64_t>()));
  }
  const auto generated = *Generate(exported, prompt, {.tokens = 30, .temperature = 0, .context = 64});
  EXPECT_EQ(generated, std::vector<int32_t>(text.begin() + static_cast<int64_t>(prompt.size()), text.end()));
}

TEST_F(Eval, ATextLongerThanTheContextGoesOnFromItsLastHalf) {
  ASSERT_OK(ExportModel(*model_, source_, Path("out")));
  const auto exported = *OpenExportedModel(Path("out"));
  const auto long_prompt = exported.tokenizer->Encode("a forgotten beginning, then the last");
  const auto last_half = exported.tokenizer->Encode("last");
  const GenerateOptions options{.tokens = 5, .temperature = 0, .context = 8};
  EXPECT_EQ(*Generate(exported, long_prompt, options), *Generate(exported, last_half, options));
  EXPECT_EQ(Generate(exported, long_prompt, {.tokens = 40, .context = 1})->size(), 40u);
}

TEST_F(Eval, GenerationEndsAtTheEndToken) {
  source_.parameter = [this](int parameter) -> absl::StatusOr<at::Tensor> {
    at::Tensor tensor = at::zeros(model_->shape().parameters[parameter].dims);
    // Of equal embeddings only the end token's is aligned with its head.
    const std::string& name = model_->shape().parameters[parameter].name;
    if (name == "model.embed_tokens.weight") tensor.fill_(1);
    if (name == "model.norm.weight") tensor.fill_(1);
    if (name == "lm_head.weight") tensor[257].fill_(1);
    return tensor;
  };
  ASSERT_OK(ExportModel(*model_, source_, Path("out")));
  const auto exported = *OpenExportedModel(Path("out"));
  EXPECT_TRUE(
      Generate(exported, exported.tokenizer->Encode("the"), {.tokens = 9, .temperature = 0})->empty());
}

TEST(TextStream, HandsOutWholeCharactersAndTogetherAllOfTheText) {
  const auto tokenizer = MakeByteTokenizer();
  TextStream stream(*tokenizer);
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xff.\xe2\x82";
  std::string all;
  for (const int32_t token : tokenizer->Encode(text)) {
    const std::string part = stream.Add(token);
    if (!part.empty()) EXPECT_NE(static_cast<unsigned char>(part[0]) & 0xc0, 0x80) << "inside a character";
    all += part;
  }
  EXPECT_EQ(all, text.substr(0, text.size() - 2));
  EXPECT_EQ(all + stream.Rest(), text);
}

TEST_F(Eval, AJobsVocabularyIsThatOfItsTokenizer) {
  v1::TrainingJobSpec spec;
  spec.mutable_model()->set_preset("llama-134m");
  EXPECT_EQ((*MakeJobModel(spec))->shape().vocab_size, 32000);
  spec.mutable_data()->set_train(Path("data/train-*.bin"));
  EXPECT_EQ((*MakeJobModel(spec))->shape().vocab_size, 260);
  spec.mutable_model()->set_vocab_size(512);
  EXPECT_EQ((*MakeJobModel(spec))->shape().vocab_size, 512);
  spec.mutable_model()->set_config_path("/nowhere");
  EXPECT_EQ(MakeJobModel(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec.mutable_model()->clear_preset();
  EXPECT_THAT(std::string(MakeJobModel(spec).status().message()), HasSubstr("model.config_path"));
}

int RunWith(int (*command)(int, char**), std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return command(static_cast<int>(argv.size()), argv.data());
}

TEST_F(Eval, CommandsReturnTheCodesTheyPromise) {
  ASSERT_OK(ExportModel(*model_, source_, Path("out")));
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunWith(RunEval, {"eval", "--model", Path("out"), "--data", Path("data"), "--sequence-length",
                              "32", "--tokens", "64", "--json", "--dump-logits", Path("logits.safetensors")}),
            0);
  const auto result = nlohmann::json::parse(::testing::internal::GetCapturedStdout());
  EXPECT_EQ(result["tokens"], 64);
  const auto logits = *(*SafetensorsFile::Open(Path("logits.safetensors")))->Read("logits");
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({2, 32, 260}));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunWith(RunEval, {"eval", "--model", Path("none"), "--data", Path("data")}), 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("NOT_FOUND: "));
  EXPECT_EQ(RunWith(RunEval, {"eval", "--modell", "x"}), 2);
  EXPECT_EQ(RunWith(RunGenerate, {"generate", "--model", Path("out"), "--temperature", "-1"}), 2);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(
      RunWith(RunGenerate, {"generate", "--model", Path("out"), "--prompt", "the ", "--max-tokens", "0"}), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "the \n");
  EXPECT_EQ(
      RunWith(RunEval, {"eval", "--model", Path("out"), "--data", Path("data"), "--sequence-length", "5000"}),
      3);
  EXPECT_EQ(RunWith(RunPrepare,
                    {"prepare", "--input", Path("out/config.json"), "--out", Path("p"), "--tokenizer", "x"}),
            3);
}

}  // namespace
}  // namespace tessera::worker

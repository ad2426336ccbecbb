#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <set>

#include "worker/models/model.h"

namespace tessera::worker {
namespace {

class Everything final : public BlockRunner {
 public:
  explicit Everything(double scale = 1) : scale_(scale) {}
  at::Tensor Run(int /*block*/, const at::Tensor& x, const BlockBody& body) override {
    return body(x, scale_);
  }

 private:
  double scale_;
};

class Skips final : public BlockRunner {
 public:
  explicit Skips(std::set<int> absent) : absent_(std::move(absent)) {}
  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override {
    return absent_.contains(block) ? x : body(x, 1);
  }

 private:
  std::set<int> absent_;
};

std::unique_ptr<Model> Preset(const std::string& name) { return *MakeModel({.preset = name}); }

Weights Initialized(const Model& model, uint64_t seed = 1) {
  Weights weights;
  for (size_t i = 0; i < model.shape().parameters.size(); ++i) {
    weights.push_back(at::empty(model.shape().parameters[i].dims));
    model.Initialize(static_cast<int>(i), seed, weights.back());
  }
  return weights;
}

Batch RandomBatch(const Model& model, int64_t rows, int64_t length) {
  at::manual_seed(11);
  return {at::randint(model.shape().vocab_size, {rows, length}, at::kLong),
          at::randint(model.shape().vocab_size, {rows, length}, at::kLong), rows * length};
}

TEST(Llama, PresetsHaveTheParametersTheyAreNamedFor) {
  EXPECT_EQ(Preset("llama-134m")->shape().elements(), 134'105'856);
  EXPECT_EQ(Preset("llama-8m")->shape().blocks.size(), 8u);
  EXPECT_NEAR(Preset("llama-1m")->shape().elements() / 1e6, 1, 0.2);
  EXPECT_NEAR(Preset("llama-8m")->shape().elements() / 8e6, 1, 0.1);
  EXPECT_NEAR(Preset("llama-500m")->shape().elements() / 500e6, 1, 0.02);
  EXPECT_NEAR(Preset("llama-1b")->shape().elements() / 1e9, 1, 0.02);
}

TEST(Llama, ShareOfMaskableParametersIsThatOfThePublishedFigures) {
  const auto share = [](const Model& model, bool ends_always_on) {
    const int last = static_cast<int>(model.shape().blocks.size()) - 1;
    int64_t maskable = 0;
    for (int block = 0; block <= last; ++block) {
      if (!ends_always_on || (block != 0 && block != last)) maskable += model.shape().block_elements(block);
    }
    return static_cast<double>(maskable) / static_cast<double>(model.shape().elements());
  };
  EXPECT_NEAR(share(*Preset("llama-500m"), true), 0.80, 0.01);
  EXPECT_NEAR(share(*Preset("llama-1b"), false), 0.906, 0.01);
}

// Positions are computed in other groups of rows, so sums are rounded differently: 1e-5 of logits near 1.
TEST(Llama, LogitsTokenByTokenAreThoseOfTheWholeText) {
  const auto model = *MakeModel({.config_json = R"({"model_type": "llama", "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
      "vocab_size": 61, "initializer_range": 0.3})"});
  const Weights weights = Initialized(*model);
  at::NoGradGuard no_grad;
  Everything runner;
  const at::Tensor tokens = RandomBatch(*model, 2, 150).inputs;
  const at::Tensor whole = model->Logits(weights, {.inputs = tokens}, runner);
  const double roundings = 1e-5 * whole.abs().max().item<double>();
  DecodingState state;
  int64_t seen = 0;
  // A prompt, single tokens across the growth of the state, and several at once after a past.
  for (int64_t next : {20, 1, 1, 1, 60, 1, 1, 50, 1}) {
    const at::Tensor logits = dynamic_cast<const TextGenerator&>(*model).Decode(
        weights, tokens.narrow(1, seen, next), runner, state);
    seen += next;
    EXPECT_EQ(state.positions, seen);
    EXPECT_EQ(logits.sizes(), at::IntArrayRef({2, 1, 61}));
    EXPECT_LE((logits - whole.narrow(1, seen - 1, 1)).abs().max().item<double>(), roundings) << seen;
  }
}

TEST(Llama, UnknownPresetListsTheKnownOnes) {
  const auto model = MakeModel({.preset = "llama-9t"});
  EXPECT_EQ(model.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(model.status().message().find("llama-8m"), std::string::npos);
}

TEST(Llama, VocabularyOfTheConfigWins) {
  const auto model = *MakeModel({.preset = "llama-1m", .vocab_size = 300});
  EXPECT_EQ(model->shape().vocab_size, 300);
  EXPECT_EQ(model->shape().parameters[0].dims[0], 300);
  EXPECT_NE(model->HuggingFaceConfig().find("\"vocab_size\": 300"), std::string::npos);
}

TEST(Llama, FlopsAreTwoPerElementOfTheMatrices) {
  const auto model = Preset("llama-8m");
  int64_t matrices = 0;
  for (const auto& p : model->shape().parameters) {
    if (p.block == 0 && p.dims.size() == 2) matrices += p.elements();
  }
  EXPECT_EQ(model->shape().blocks[0].flops_per_token, 2.0 * matrices);
}

TEST(Llama, AxesCoverTheDimensionsThatAreCutTogether) {
  const auto model = Preset("llama-1m");
  const plan::Block& block = model->shape().blocks[0];
  for (const auto& axis : block.axes) {
    for (const auto& p : model->shape().parameters) {
      for (size_t d = 0; d < p.axes.size(); ++d) {
        if (p.axes[d] == axis.axis) {
          EXPECT_EQ(p.dims[d] % axis.chunks, 0) << p.name;
        }
      }
    }
  }
}

TEST(Llama, InitialLossIsThatOfAUniformGuess) {
  const auto model = Preset("llama-1m");
  const Weights weights = Initialized(*model);
  const Batch batch = RandomBatch(*model, 2, 64);
  Everything runner;
  at::NoGradGuard no_grad;
  const double loss = model->Loss(weights, batch, runner).item<double>() / batch.target_count;
  EXPECT_NEAR(loss, std::log(260.0), 0.05);
}

TEST(Llama, LossEqualsCrossEntropyOfItsLogits) {
  const auto model = Preset("llama-1m");
  const Weights weights = Initialized(*model);
  const Batch batch = RandomBatch(*model, 2, 33);
  Everything runner;
  at::NoGradGuard no_grad;
  const at::Tensor logits = model->Logits(weights, batch, runner);
  ASSERT_EQ(logits.sizes(), at::IntArrayRef({2, 33, 260}));
  const double want =
      at::cross_entropy_loss(logits.view({-1, 260}), batch.targets.view({-1}), {}, at::Reduction::Sum)
          .item<double>();
  EXPECT_NEAR(model->Loss(weights, batch, runner).item<double>(), want, 1e-5 * want);
}

TEST(Llama, LaterTokensDoNotChangeEarlierLogits) {
  const auto model = Preset("llama-1m");
  const Weights weights = Initialized(*model);
  Everything runner;
  at::NoGradGuard no_grad;
  at::Tensor tokens = RandomBatch(*model, 1, 20).inputs;
  const at::Tensor before = model->Logits(weights, {.inputs = tokens}, runner);
  tokens[0][10] = (tokens[0][10].item<int64_t>() + 1) % 260;
  const at::Tensor after = model->Logits(weights, {.inputs = tokens}, runner);
  EXPECT_TRUE(at::equal(before.narrow(1, 0, 10), after.narrow(1, 0, 10)));
  EXPECT_FALSE(at::equal(before.narrow(1, 10, 10), after.narrow(1, 10, 10)));
}

TEST(Llama, AnAbsentBlockNeedsNoWeightsAndIsItsShortcut) {
  const auto model = Preset("llama-1m");
  Weights weights = Initialized(*model);
  const Batch batch = RandomBatch(*model, 1, 16);
  at::NoGradGuard no_grad;
  Weights zeroed = weights;
  for (int output : model->BranchOutputs(1)) zeroed[output] = at::zeros_like(zeroed[output]);
  Everything all;
  const double want = model->Loss(zeroed, batch, all).item<double>();
  for (size_t i = 0; i < weights.size(); ++i) {
    if (model->shape().parameters[i].block == 1) weights[i].reset();
  }
  Skips runner({1});
  EXPECT_EQ(model->Loss(weights, batch, runner).item<double>(), want);
}

TEST(Llama, ScalingTheBranchOutputsEqualsTheBranchScale) {
  const auto model = Preset("llama-1m");
  const Weights weights = Initialized(*model);
  const Batch batch = RandomBatch(*model, 1, 16);
  at::NoGradGuard no_grad;
  Everything scaled(0.625), plain;
  Weights folded = weights;
  for (size_t block = 0; block < model->shape().blocks.size(); ++block) {
    for (int output : model->BranchOutputs(static_cast<int>(block))) folded[output] = folded[output] * 0.625;
  }
  EXPECT_NEAR(model->Loss(weights, batch, scaled).item<double>(),
              model->Loss(folded, batch, plain).item<double>(), 1e-4);
}

TEST(Llama, InitializeGivesTheDeviationsOfThePaper) {
  const auto model = Preset("llama-1m");
  const Weights weights = Initialized(*model);
  for (size_t i = 0; i < weights.size(); ++i) {
    const plan::Parameter& p = model->shape().parameters[i];
    if (p.dims.size() == 1) {
      EXPECT_TRUE(at::equal(weights[i], at::ones(p.dims))) << p.name;
      continue;
    }
    const bool output =
        p.name.find("o_proj") != std::string::npos || p.name.find("down_proj") != std::string::npos;
    const double want = output ? 0.02 / std::sqrt(8.0) : 0.02;
    EXPECT_NEAR(weights[i].std().item<double>() / want, 1, 0.03) << p.name;
  }
}

// Central differences along a random direction.
TEST(Llama, GradientsAreTheSlopesOfTheLoss) {
  for (const char* tied : {"true", "false"}) {
    const auto model = *MakeModel({.config_json = std::string(R"({"model_type":"llama","hidden_size":16,
        "intermediate_size":24,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
        "vocab_size":30,"initializer_range":0.3,"tie_word_embeddings":)") +
                                                  tied + "}"});
    Weights weights = Initialized(*model);
    for (at::Tensor& w : weights) w.requires_grad_(true);
    const Batch batch = RandomBatch(*model, 2, 8);
    Everything runner(0.7);
    const auto gradients = torch::autograd::grad({model->Loss(weights, batch, runner)}, weights);
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < weights.size(); ++i) {
      const at::Tensor direction = at::randn(weights[i].sizes());
      const double slope = (gradients[i] * direction).sum().item<double>(),
                   h = 1e-2 / direction.norm().item<double>();
      const auto at_offset = [&](double offset) {
        Weights moved = weights;
        moved[i] = weights[i] + offset * direction;
        return model->Loss(moved, batch, runner).item<double>();
      };
      const double measured = (at_offset(h) - at_offset(-h)) / (2 * h);
      // fp32 loss of about 55 has a rounding error of 4e-6, divided by the step.
      EXPECT_NEAR(slope, measured, 0.02 * std::abs(slope) + 1e-5 / h) << model->shape().parameters[i].name;
    }
  }
}

}  // namespace
}  // namespace tessera::worker

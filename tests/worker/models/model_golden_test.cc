// Logits, loss and gradients of torchvision and transformers, made by tests/peers/make_model_goldens.py.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/status.h"
#include "tests/worker/models/formula_weights.h"
#include "worker/models/model.h"

namespace tessera::worker {
namespace {

class Everything final : public BlockRunner {
 public:
  using BlockRunner::BlockRunner;
  at::Tensor Run(int, const at::Tensor& x, const BlockBody& body) override { return body(x, 1); }
};

nlohmann::json Golden(const std::string& name) {
  std::ifstream file(std::string(std::getenv("TESSERA_GOLDEN")) + "/models/" + name + ".json");
  return nlohmann::json::parse(file);
}

Batch ImageBatch(const ModelInput& input, int64_t rows) {
  return {FormulaTensor("images", {rows, input.channels, input.height, input.width}, 0, 3),
          at::arange(rows, at::kLong).remainder(input.classes), rows};
}

// Same arithmetic in another order: 1e-4 of logits up to 5; gradients to 1e-3 of the whole gradient's norm.
void ExpectGolden(const std::string& name, const Model& model, const Batch& batch,
                  const nlohmann::json& golden) {
  EXPECT_EQ(model.shape().elements(), golden["elements"].get<int64_t>());
  Weights weights = FormulaWeights(model.shape());
  const size_t parameters = model.shape().parameters.size();
  {
    const at::NoGradGuard no_grad;
    Everything runner;
    at::Tensor logits = model.Logits(weights, batch, runner);
    if (model.input().task == Task::kMaskedToken) logits = logits.index({batch.targets != kIgnoredTarget});
    logits = logits.reshape({-1});
    const auto want = golden["logits"].get<std::vector<float>>();
    ASSERT_EQ(logits.numel(), static_cast<int64_t>(want.size()));
    EXPECT_LE((logits - at::tensor(want)).abs().max().item<double>(), 1e-4) << name;
  }
  for (size_t i = 0; i < parameters; ++i) weights[i].requires_grad_(true);
  Everything training({.norm = NormSource::kBatch});
  const at::Tensor loss = model.Loss(weights, batch, training);
  const auto want_loss = golden["loss"].get<double>();
  EXPECT_NEAR(loss.item<double>(), want_loss, 1e-4 * want_loss);
  loss.backward();
  size_t compared = 0;
  for (size_t i = 0; i < parameters; ++i) {
    const std::string& parameter = model.shape().parameters[i].name;
    if (!golden["gradients"].contains(parameter)) continue;
    ++compared;
    const auto want = golden["gradients"][parameter].get<std::vector<double>>();
    const at::Tensor& gradient = weights[i].grad();
    EXPECT_NEAR(gradient.norm().item<double>(), want[0], 1e-3 * want[0]) << parameter;
    for (size_t k = 1; k < want.size(); ++k) {
      EXPECT_NEAR(gradient.reshape({-1})[static_cast<int64_t>(k) - 1].item<double>(), want[k], 1e-3 * want[0])
          << parameter;
    }
  }
  EXPECT_EQ(compared, golden["gradients"].size());
}

class ImageModelGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(ImageModelGolden, LogitsLossAndGradientsAreThoseOfTheOriginal) {
  const nlohmann::json golden = Golden(GetParam());
  const auto model = MakeModel({.config_json = golden["config"].dump()});
  ASSERT_OK(model);
  const int64_t rows = static_cast<int64_t>(golden["logits"].size()) / (*model)->input().classes;
  ExpectGolden(GetParam(), **model, ImageBatch((*model)->input(), rows), golden);
}

INSTANTIATE_TEST_SUITE_P(Models, ImageModelGolden,
                         ::testing::Values("resnet18", "resnet50", "swin", "swin_t"),
                         [](const auto& info) { return std::string(info.param); });

// Texts of 20, 13, 17 and 5 tokens; every sixth is told.
TEST(BertGolden, LogitsLossAndGradientsAreThoseOfTransformers) {
  const at::Tensor tokens = at::arange(80, at::kLong).mul(37).remainder(101).view({4, 20});
  const at::Tensor lengths = at::tensor({20, 13, 17, 5}, at::kLong);
  const at::Tensor padding = at::arange(20, at::kLong).unsqueeze(0) >= lengths.unsqueeze(1);
  const at::Tensor told =
      at::arange(80, at::kLong).remainder(6).eq(0).view({4, 20}).logical_and(padding.logical_not());
  for (const char* name : {"bert_masked", "bert_classes"}) {
    const nlohmann::json golden = Golden(name);
    const auto model = MakeModel({.config_json = golden["config"].dump()});
    ASSERT_OK(model);
    Batch batch{tokens, at::arange(4, at::kLong).remainder(3), 4, padding};
    if ((*model)->input().task == Task::kMaskedToken) {
      batch.targets = at::where(told, tokens, at::scalar_tensor(kIgnoredTarget, at::kLong));
      batch.target_count = told.sum().item<int64_t>();
    }
    ExpectGolden(name, **model, batch, golden);
  }
}

}  // namespace
}  // namespace tessera::worker

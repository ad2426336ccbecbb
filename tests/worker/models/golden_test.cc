// Logits, loss and gradients of transformers' LlamaForCausalLM, made by tests/peers/make_llama_golden.py.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <cstdlib>

#include "tests/status.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/models/model.h"
#include "worker/nn/autocast.h"

namespace tessera::worker {
namespace {

class Everything final : public BlockRunner {
 public:
  at::Tensor Run(int /*block*/, const at::Tensor& x, const BlockBody& body) override { return body(x, 1); }
};

class LlamaGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(LlamaGolden, LogitsLossAndGradientsAreThoseOfTransformers) {
  const auto file = SafetensorsFile::Open(std::string(std::getenv("TESSERA_GOLDEN")) + "/llama/" +
                                          GetParam() + ".safetensors");
  ASSERT_OK(file);
  const auto model = MakeModel({.config_json = (*file)->metadata().at("config")});
  ASSERT_OK(model);
  Weights weights;
  for (const plan::Parameter& p : (*model)->shape().parameters) {
    const auto tensor = (*file)->Read(p.name);
    ASSERT_OK(tensor);
    ASSERT_EQ(tensor->sizes(), at::IntArrayRef(p.dims));
    weights.push_back(tensor->clone().requires_grad_(true));
  }
  const at::Tensor tokens = *(*file)->Read("golden.tokens");
  Everything runner;
  {
    at::NoGradGuard no_grad;
    const at::Tensor logits = (*model)->Logits(weights, {.inputs = tokens}, runner);
    const at::Tensor want = *(*file)->Read("golden.logits");
    EXPECT_LE((logits - want).abs().max().item<double>(), 1e-4) << "largest logit " << want.abs().max();
  }
  // transformers drops the last position: here its target is ignored.
  at::Tensor targets = at::full_like(tokens, kIgnoredTarget);
  targets.narrow(1, 0, tokens.size(1) - 1).copy_(tokens.narrow(1, 1, tokens.size(1) - 1));
  const at::Tensor loss = (*model)->Loss(weights, {tokens, targets, 0}, runner);
  const double want_loss = (*file)->Read("golden.loss")->item<double>();
  EXPECT_NEAR(loss.item<double>(), want_loss, 1e-5 * want_loss);
  const auto gradients = torch::autograd::grad({loss}, weights);
  int compared = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const std::string name = "golden.grad." + (*model)->shape().parameters[i].name;
    if (!(*file)->Has(name)) continue;
    ++compared;
    EXPECT_TRUE(at::allclose(gradients[i], *(*file)->Read(name), 1e-3, 1e-4)) << name;
  }
  EXPECT_EQ(compared, 4);
}

INSTANTIATE_TEST_SUITE_P(Heads, LlamaGolden, ::testing::Values("tied", "untied"),
                         [](const auto& info) { return std::string(info.param); });

// Under autocast, against torch's on the same weights. Both round to eight bits at the same places but where
// kernels sum in another order, so that they are nearer to each other than either is to fp32.
TEST(LlamaBf16Golden, LossAndGradientsAreThoseOfTorchsAutocast) {
  const std::string folder = std::string(std::getenv("TESSERA_GOLDEN")) + "/llama/";
  const auto exact = SafetensorsFile::Open(folder + "untied.safetensors");
  const auto file = SafetensorsFile::Open(folder + "bf16.safetensors");
  ASSERT_TRUE(exact.ok() && file.ok()) << exact.status() << file.status();
  const auto model = MakeModel({.config_json = (*exact)->metadata().at("config")});
  ASSERT_OK(model);
  Weights weights;
  for (const plan::Parameter& p : (*model)->shape().parameters) {
    weights.push_back((*exact)->Read(p.name)->clone().requires_grad_(true));
  }
  const at::Tensor tokens = *(*exact)->Read("golden.tokens");
  at::Tensor targets = at::full_like(tokens, kIgnoredTarget);
  targets.narrow(1, 0, tokens.size(1) - 1).copy_(tokens.narrow(1, 1, tokens.size(1) - 1));
  Everything runner;
  at::Tensor loss;
  {
    const Autocast autocast(true);
    loss = (*model)->Loss(weights, {tokens, targets, 0}, runner);
  }
  const double theirs = (*file)->Read("golden.loss")->item<double>();
  EXPECT_NEAR(loss.item<double>(), theirs, 2e-3 * theirs);
  const auto gradients = torch::autograd::grad({loss}, weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    const std::string& name = (*model)->shape().parameters[i].name;
    const at::Tensor want = *(*file)->Read("golden.grad." + name);
    const double apart = ((gradients[i] - want).norm() / want.norm()).item<double>();
    EXPECT_LT(apart, 0.02) << name;
  }
}

}  // namespace
}  // namespace tessera::worker

// What every registered preset must do, whatever its family.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/status.h"
#include "worker/models/model.h"
#include "worker/nn/autocast.h"
#include "worker/nn/host_loops.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

class SomeBlocks final : public BlockRunner {
 public:
  explicit SomeBlocks(std::set<int> absent = {}, double scale = 1, NormSource norm = NormSource::kBatch)
      : BlockRunner({.norm = norm}), absent_(std::move(absent)), scale_(scale) {}
  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override {
    return absent_.contains(block) ? body.Shortcut(x) : body(x, scale_);
  }

 private:
  std::set<int> absent_;
  double scale_;
};

// Small members of each family, with every feature of it.
struct Family {
  const char* name;
  const char* config_json;
};
const Family kSmall[] = {
    {"llama", R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 61})"},
    {"resnet_basic",
     R"({"model_type": "torchvision-resnet", "depths": [2, 1], "widths": [16, 32], "image_size": 12, "num_labels": 5})"},
    {"resnet_bottleneck",
     R"({"model_type": "torchvision-resnet", "block": "bottleneck", "stem": "imagenet", "depths": [1, 2],
        "widths": [8, 16], "image_size": 40, "num_labels": 5})"},
    {"swin", R"({"model_type": "swin", "image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 1],
        "num_heads": [2, 4], "window_size": 4, "num_labels": 5})"},
    {"bert_masked_tokens",
     R"({"model_type": "bert", "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 16})"},
    {"bert_classifier",
     R"({"model_type": "bert", "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "architectures": ["BertForSequenceClassification"]})"},
};

Weights Initialized(const Model& model) {
  Weights weights;
  for (size_t i = 0; i < model.shape().parameters.size(); ++i) {
    weights.push_back(at::empty(model.shape().parameters[i].dims));
    model.Initialize(static_cast<int>(i), 1, weights.back());
  }
  for (const plan::Buffer& buffer : model.shape().buffers) {
    weights.push_back(at::full(buffer.dims, buffer.initial, at::kFloat));
  }
  return weights;
}

Batch SomeBatch(const ModelInput& input, int64_t rows) {
  at::manual_seed(3);
  Batch batch;
  if (input.vocab_size == 0) {
    batch.inputs = at::randn({rows, input.channels, input.height, input.width});
  } else {
    batch.inputs = at::randint(input.vocab_size, {rows, 16}, at::kLong);
  }
  const bool each_token = input.task == Task::kNextToken || input.task == Task::kMaskedToken;
  batch.targets = each_token ? at::randint(input.vocab_size, {rows, 16}, at::kLong)
                             : at::randint(input.classes, {rows}, at::kLong);
  batch.target_count = batch.targets.numel();
  return batch;
}

class Conformance : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    auto model = MakeModel({.config_json = GetParam().config_json});
    ASSERT_OK(model);
    model_ = *std::move(model);
    batch_ = SomeBatch(model_->input(), 3);
  }
  double Loss(const Weights& weights, BlockRunner&& runner) const {
    const at::NoGradGuard no_grad;
    return model_->Loss(weights, batch_, runner).item<double>();
  }
  std::unique_ptr<Model> model_;
  Batch batch_;
};

TEST_P(Conformance, ConfigMakesTheSameModelAgain) {
  const auto again = MakeModel({.config_json = model_->HuggingFaceConfig()});
  ASSERT_OK(again);
  EXPECT_EQ((*again)->shape().Fingerprint(), model_->shape().Fingerprint());
}

TEST_P(Conformance, NamesAreUniqueAndBlocksMatchTheirKind) {
  const plan::ModelShape& shape = model_->shape();
  std::set<std::string> names;
  for (const auto& p : shape.parameters) EXPECT_TRUE(names.insert(p.name).second) << p.name;
  for (const auto& b : shape.buffers) EXPECT_TRUE(names.insert(b.name).second) << b.name;
  std::map<int, std::pair<int64_t, double>> kinds;
  int next = 0;
  for (size_t b = 0; b < shape.blocks.size(); ++b) {
    EXPECT_LE(shape.blocks[b].kind, next) << "kinds are numbered in the order of the blocks";
    next = std::max(next, shape.blocks[b].kind + 1);
    const std::pair cost(shape.block_elements(static_cast<int>(b)), shape.blocks[b].flops_per_token);
    EXPECT_EQ(kinds.try_emplace(shape.blocks[b].kind, cost).first->second, cost) << shape.blocks[b].name;
  }
}

TEST_P(Conformance, AxesCoverTheDimensionsThatAreCutTogether) {
  const plan::ModelShape& shape = model_->shape();
  for (size_t b = 0; b < shape.blocks.size(); ++b) {
    for (const plan::BlockAxis& axis : shape.blocks[b].axes) {
      int cut = 0;
      for (const plan::Parameter& p : shape.parameters) {
        if (p.block != static_cast<int>(b)) continue;
        for (size_t d = 0; d < p.axes.size(); ++d) {
          if (p.axes[d] != axis.axis) continue;
          ++cut;
          EXPECT_EQ(p.dims[d] % axis.chunks, 0) << p.name;
        }
      }
      EXPECT_GE(cut, 2) << shape.blocks[b].name;
    }
  }
}

// In bf16 the same function, as far as eight bits of mantissa carry; with gradients in fp32, which point the
// same way. With the host's loops, and with LibTorch's operators as on a device.
TEST_P(Conformance, Bf16ComputesTheSameAndKeepsGradientsInFp32) {
  Weights weights = Initialized(*model_);
  for (size_t p = 0; p < model_->shape().parameters.size(); ++p) weights[p].set_requires_grad(true);
  const auto pass = [&](bool bf16, bool as_on_a_device) {
    std::optional<WithoutHostLoops> device;
    if (as_on_a_device) device.emplace();
    SomeBlocks runner;
    at::Tensor loss;
    {
      const Autocast autocast(bf16);
      loss = model_->Loss(weights, batch_, runner);
    }
    loss.backward();
    std::vector<at::Tensor> gradients;
    for (size_t p = 0; p < model_->shape().parameters.size(); ++p) {
      gradients.push_back(weights[p].grad());
      EXPECT_EQ(gradients.back().scalar_type(), at::kFloat);
      weights[p].mutable_grad().reset();
    }
    return std::pair(loss.item<double>(), gradients);
  };
  const auto [exact, expected] = pass(false, false);
  double losses[2];
  for (const bool as_on_a_device : {false, true}) {
    const auto [loss, gradients] = pass(true, as_on_a_device);
    losses[as_on_a_device ? 1 : 0] = loss;
    EXPECT_NE(loss, exact) << "nothing is computed in bf16";
    EXPECT_NEAR(loss, exact, 0.01 * exact);
    double dot = 0, a = 0, b = 0;
    for (size_t p = 0; p < gradients.size(); ++p) {
      dot += at::sum(expected[p] * gradients[p]).item<double>();
      a += at::sum(expected[p] * expected[p]).item<double>();
      b += at::sum(gradients[p] * gradients[p]).item<double>();
    }
    // A batch norm's gradient is a difference of nearly equal sums, here over three images: torch's own
    // autocast gives 0.97 for such a ResNet.
    EXPECT_GT(dot / std::sqrt(a * b), model_->shape().buffers.empty() ? 0.99 : 0.96);
    EXPECT_NEAR(std::sqrt(b / a), 1, 0.05);
  }
  // fp32 sums in another order between products whose roundings are of 2^-9.
  EXPECT_NEAR(losses[0], losses[1], 2e-3 * exact);
}

TEST_P(Conformance, LossIsTheCrossEntropyOfTheLogits) {
  const Weights weights = Initialized(*model_);
  const at::NoGradGuard no_grad;
  SomeBlocks runner;
  const at::Tensor logits = model_->Logits(weights, batch_, runner);
  ASSERT_EQ(logits.size(-1), model_->input().classes);
  const double want = at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}),
                                             batch_.targets.reshape({-1}), {}, at::Reduction::Sum)
                          .item<double>();
  EXPECT_NEAR(Loss(weights, SomeBlocks()), want, 1e-5 * want);
  EXPECT_NEAR(want / static_cast<double>(batch_.target_count), std::log(model_->input().classes), 1.5);
}

// The same arithmetic with LibTorch's operators as on a device.
TEST_P(Conformance, LossIsTheSameWithoutTheHostsLoops) {
  const Weights weights = Initialized(*model_);
  const double host = Loss(weights, SomeBlocks());
  const WithoutHostLoops device;
  EXPECT_NEAR(Loss(weights, SomeBlocks()), host, 1e-5 * host);
}

TEST_P(Conformance, AnAbsentBlockNeedsNoWeights) {
  Weights weights = Initialized(*model_);
  for (int block = 0; block < static_cast<int>(model_->shape().blocks.size()); ++block) {
    if (!model_->shape().blocks[block].maskable) continue;
    Weights held = weights;
    for (size_t i = 0; i < model_->shape().parameters.size(); ++i) {
      if (model_->shape().parameters[i].block == block) held[i].reset();
    }
    EXPECT_TRUE(std::isfinite(Loss(held, SomeBlocks({block})))) << block;
  }
}

TEST_P(Conformance, ScalingTheBranchOutputsEqualsTheBranchScale) {
  const Weights weights = Initialized(*model_);
  Weights folded = weights;
  for (size_t block = 0; block < model_->shape().blocks.size(); ++block) {
    for (int output : model_->BranchOutputs(static_cast<int>(block))) folded[output] = folded[output] * 0.625;
  }
  const double scaled = Loss(weights, SomeBlocks({}, 0.625));
  EXPECT_NEAR(scaled, Loss(folded, SomeBlocks()), 1e-4 * scaled);
  EXPECT_NE(scaled, Loss(weights, SomeBlocks()));
}

TEST_P(Conformance, EveryParameterOfAHeldBlockGetsAGradientAndNoOther) {
  Weights weights = Initialized(*model_);
  const size_t parameters = model_->shape().parameters.size();
  for (size_t i = 0; i < parameters; ++i) weights[i].requires_grad_(true);
  int absent = -1;
  for (size_t b = 0; b < model_->shape().blocks.size(); ++b) {
    if (model_->shape().blocks[b].maskable) absent = static_cast<int>(b);
  }
  SomeBlocks runner({absent});
  model_->Loss(weights, batch_, runner).backward();
  for (size_t i = 0; i < parameters; ++i) {
    EXPECT_EQ(weights[i].grad().defined(), model_->shape().parameters[i].block != absent)
        << model_->shape().parameters[i].name;
  }
}

// A rank that holds part of a block's axis has smaller tensors: what the pieces add sums up to the whole.
TEST_P(Conformance, ABlockRunsOnASliceOfEachAxis) {
  const plan::ModelShape& shape = model_->shape();
  const Weights weights = Initialized(*model_);
  for (size_t b = 0; b < shape.blocks.size(); ++b) {
    for (const plan::BlockAxis& axis : shape.blocks[b].axes) {
      if (axis.chunks < 2) continue;
      Weights sliced = weights;
      for (size_t i = 0; i < shape.parameters.size(); ++i) {
        const plan::Parameter& p = shape.parameters[i];
        for (size_t d = 0; p.block == static_cast<int>(b) && d < p.axes.size(); ++d) {
          if (p.axes[d] == axis.axis) {
            sliced[i] = sliced[i].narrow(static_cast<int64_t>(d), 0, p.dims[d] / axis.chunks).contiguous();
          }
        }
      }
      EXPECT_TRUE(std::isfinite(Loss(sliced, SomeBlocks()))) << shape.blocks[b].name;
    }
  }
}

TEST_P(Conformance, BatchNormIsEstimatedIntoTheBuffersAndNowhereElse) {
  if (model_->shape().buffers.empty()) GTEST_SKIP() << "no batch norm";
  Weights weights = Initialized(*model_);
  const size_t parameters = model_->shape().parameters.size();
  const double batch_loss = Loss(weights, SomeBlocks());
  for (size_t i = parameters; i < weights.size(); ++i) {
    EXPECT_EQ(weights[i].sum().item<double>(),
              model_->shape().buffers[i - parameters].initial * static_cast<double>(weights[i].numel()));
    weights[i].zero_();
  }
  // New memory is full of NaN meanwhile: estimates once took over those that happened to be there.
  at::globalContext().setDeterministicAlgorithms(/*mode=*/true, /*warn_only=*/true);
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_NEAR(Loss(weights, SomeBlocks({}, 1, NormSource::kEstimate)), batch_loss, 1e-4);
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
  for (size_t i = parameters; i < weights.size(); ++i) weights[i].div_(2);
  // Of the same batch, but the variance is the unbiased one: a few per cent apart at a few hundred elements.
  EXPECT_NEAR(Loss(weights, SomeBlocks({}, 1, NormSource::kRunning)), batch_loss, 0.1 * batch_loss);
}

INSTANTIATE_TEST_SUITE_P(Families, Conformance, ::testing::ValuesIn(kSmall),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Models, PresetsHaveThePublishedNumbersOfParameters) {
  const auto elements = [](const char* preset, int64_t classes = 0) {
    const auto model = MakeModel({.preset = preset, .classes = classes});
    EXPECT_OK(model);
    return (*model)->shape().elements();
  };
  EXPECT_EQ(elements("resnet18-cifar"), 11'173'962);
  EXPECT_EQ(elements("resnet18-cifar", 100), 11'220'132);
  EXPECT_EQ(elements("resnet50"), 25'557'032);
  EXPECT_EQ(elements("swin-t"), 28'288'354);
  // With the pooler, without the head of two classes.
  EXPECT_EQ(elements("bert-base-classifier") - 2 * 768 - 2, 109'482'240);
  EXPECT_EQ(elements("bert-base"), 109'514'298);  // transformers' BertForMaskedLM
}

TEST(Models, ResNet18HasTheBlocksOfThePlan) {
  const auto model = *MakeModel({.preset = "resnet18-cifar"});
  EXPECT_EQ(model->shape().blocks.size(), 8U);
  EXPECT_EQ(model->shape().block_elements(0), 73'984);
  EXPECT_EQ(model->shape().block_elements(7), 4'720'640);
}

struct Complaint {
  const char* config;
  const char* says;
};

TEST(Models, AConfigThatCannotBeBuiltIsRefusedByItsField) {
  for (const Complaint& c : {
           Complaint{R"({"model_type": "torchvision-resnet", "widths": [8]})", "depths: is missing"},
           Complaint{R"({"model_type": "torchvision-resnet", "depths": [1, 1], "widths": [8]})",
                     "widths: has 1"},
           Complaint{R"({"model_type": "torchvision-resnet", "depths": [0], "widths": [8]})",
                     "depths: must be a list"},
           Complaint{R"({"model_type": "torchvision-resnet", "depths": [1], "widths": [8], "block": "odd"})",
                     "block: must be one of"},
           Complaint{R"({"model_type": "swin", "window_size": 5})",
                     "window_size: 5 does not divide the 56 x 56"},
           Complaint{R"({"model_type": "swin", "num_heads": [3]})", "num_heads: has 1"},
           Complaint{R"({"model_type": "bert", "vocab_size": 9})", "hidden_size: is missing"},
           Complaint{R"({"model_type": "bert", "vocab_size": 9, "hidden_size": 10, "intermediate_size": 4,
                         "num_hidden_layers": 1, "num_attention_heads": 3})",
                     "num_attention_heads: 3 does not divide"},
           Complaint{R"({"model_type": "gpt-9"})", "known: "},
       }) {
    const auto model = MakeModel({.config_json = c.config});
    EXPECT_FALSE(model.ok()) << c.config;
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace tessera::worker

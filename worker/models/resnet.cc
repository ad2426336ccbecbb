// ResNet (He et al., 2016) for images: basic blocks or bottlenecks, the stem of ImageNet or the small one of
// CIFAR. Parameter names are torchvision's.
//
// A block is its residual branch; a strided shortcut has weights of its own, lies outside the blocks and
// stands in for an absent block. Inner channels are read from the weights, so a slice of a block runs as it
// is.
//
// Shapes: B batch, C channels, H height, W width.
#include <torch/types.h>

#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/models/classes.h"
#include "worker/models/config_fields.h"
#include "worker/models/model.h"
#include "worker/models/preset_family.h"

namespace tessera::worker {
namespace {

struct ResNetConfig {
  bool bottleneck = false;      // else basic blocks
  bool small_stem = true;       // 3 x 3 of stride 1; else 7 x 7 of stride 2 and a pool of stride 2
  std::vector<int64_t> depths;  // blocks by stage
  std::vector<int64_t> widths;  // channels by stage, of a bottleneck its inner ones
  int64_t channels = 3, size = 32, classes = 10;  // of the images, square
};

const std::vector<std::pair<std::string, ResNetConfig>>& AllPresets() {
  static const auto& presets = *new std::vector<std::pair<std::string, ResNetConfig>>{
      // 272,474 parameters and 0.04 GFLOPs an image: a run takes minutes on a few cores.
      {"resnet20-cifar", {.depths = {3, 3, 3}, .widths = {16, 32, 64}}},
      {"resnet18-cifar", {.depths = {2, 2, 2, 2}, .widths = {64, 128, 256, 512}}},  // 11,173,962 parameters
      {"wide-resnet18-cifar", {.depths = {2, 2, 2, 2}, .widths = {128, 256, 512, 1024}}},
      {"resnet50",  // 25,557,032 parameters
       {.bottleneck = true,
        .small_stem = false,
        .depths = {3, 4, 6, 3},
        .widths = {64, 128, 256, 512},
        .size = 224,
        .classes = 1000}},
  };
  return presets;
}

constexpr char kModelType[] = "torchvision-resnet";

absl::StatusOr<ResNetConfig> ParseConfig(const std::string& text) {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json object, ParseConfigObject(text));
  ConfigFields fields(object);
  ResNetConfig config;
  config.bottleneck = fields.Word("block", "basic", {"basic", "bottleneck"}) == "bottleneck";
  config.small_stem = fields.Word("stem", "cifar", {"cifar", "imagenet"}) == "cifar";
  config.depths = fields.Integers("depths", {});
  config.widths = fields.Integers("widths", {});
  config.channels = fields.Integer("num_channels", config.channels);
  config.size = fields.Integer("image_size", config.size);
  config.classes = fields.Integer("num_labels", config.classes);
  TESSERA_RETURN_IF_ERROR(fields.status);
  if (config.depths.empty()) return InvalidField("depths", "is missing");
  if (config.depths.size() != config.widths.size()) {
    return InvalidField(
        "widths", absl::StrCat("has ", config.widths.size(), " entries, depths has ", config.depths.size()));
  }
  return config;
}

std::string FormatConfig(const ResNetConfig& config) {
  nlohmann::ordered_json object;
  object["model_type"] = kModelType;
  object["block"] = config.bottleneck ? "bottleneck" : "basic";
  object["stem"] = config.small_stem ? "cifar" : "imagenet";
  object["depths"] = config.depths;
  object["widths"] = config.widths;
  object["num_channels"] = config.channels;
  object["image_size"] = config.size;
  object["num_labels"] = config.classes;
  return object.dump(2) + "\n";
}

// A convolution and the batch norm behind it, as indices into Weights.
struct ConvNorm {
  int conv = 0;
  int norm = 0;  // weight; the bias follows
  int mean = 0;  // among the buffers; the variance follows
  int64_t stride = 1, padding = 0;
};

struct Residual {
  std::vector<ConvNorm> branch;
  std::optional<ConvNorm> shortcut;
};

constexpr int64_t kChannelChunks = 16;

int64_t Chunks(int64_t size) {
  int64_t chunks = kChannelChunks;
  while (size % chunks != 0) chunks /= 2;
  return chunks;
}

// Adds layer by layer to a shape.
class Builder {
 public:
  Builder(const ResNetConfig& config, plan::ModelShape* shape) : shape_(*shape), size_(config.size) {}

  // cut_in, cut_out: whether the planner may cut these channels.
  ConvNorm Add(const std::string& conv, const std::string& norm, int block, int64_t in, int64_t out,
               int64_t kernel, int64_t stride, bool cut_in, bool cut_out) {
    using plan::Axis;
    const Axis in_axis = cut_in ? Axis::kChannel : Axis::kNone,
               out_axis = cut_out ? Axis::kChannel : Axis::kNone;
    ConvNorm layer{.conv = static_cast<int>(shape_.parameters.size()),
                   .mean = static_cast<int>(shape_.buffers.size()),
                   .stride = stride,
                   .padding = kernel / 2};
    layer.norm = layer.conv + 1;
    shape_.parameters.push_back({conv + ".weight",
                                 {out, in, kernel, kernel},
                                 block,
                                 {out_axis, in_axis, Axis::kNone, Axis::kNone},
                                 true});
    for (const char* name : {".weight", ".bias"}) {
      shape_.parameters.push_back({norm + name, {out}, block, {out_axis}, false});
    }
    shape_.buffers.push_back({norm + ".running_mean", {out}, 0, block});
    shape_.buffers.push_back({norm + ".running_var", {out}, 1, block});
    const int64_t output = (size_ + stride - 1) / stride;
    flops_ += 2.0 * static_cast<double>(kernel * kernel * in * out * output * output);
    return layer;
  }

  void Shrink(int64_t stride) { size_ = (size_ + stride - 1) / stride; }
  int64_t size() const { return size_; }
  double TakeFlops() { return std::exchange(flops_, 0.0); }  // since the last call

 private:
  plan::ModelShape& shape_;
  int64_t size_;  // of the features, a side
  double flops_ = 0;
};

class ResNet final : public Model {
 public:
  explicit ResNet(const ResNetConfig& config) : config_(config) {
    Build();
    input_ = ImageInput(config.classes, config.channels, config.size);
  }

  const plan::ModelShape& shape() const override { return shape_; }
  const ModelInput& input() const override { return input_; }

  // He et al. (2015) over the outgoing connections; the head as torch does, with equal variance.
  void Initialize(int parameter, uint64_t seed, at::Tensor& out) const override {
    const plan::Parameter& p = shape_.parameters[parameter];
    double variance = 0;  // of a vector, which is constant
    if (p.dims.size() == 4) variance = 2.0 / static_cast<double>(p.dims[0] * p.dims[2] * p.dims[3]);
    if (p.dims.size() == 2) variance = 1.0 / (3.0 * static_cast<double>(p.dims[1]));
    InitializeParameter(p, seed, absl::EndsWith(p.name, ".weight") ? 1 : 0, std::sqrt(variance), out);
  }

  at::Tensor Loss(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    return ClassLoss(Logits(weights, batch, runner), batch);
  }

  at::Tensor Logits(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    const NormSource norm = runner.pass().norm;
    at::Tensor x = Apply(weights, stem_, batch.inputs, norm).relu_();
    if (!config_.small_stem) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
    for (int block = 0; block < static_cast<int>(blocks_.size()); ++block) {
      x = runner.Run(block, x, Body(weights, block, norm));
    }
    const size_t head = shape_.parameters.size() - 2;
    return at::addmm(weights[head + 1], x.mean({2, 3}), weights[head].t());
  }

  std::vector<int> BranchOutputs(int block) const override {
    const int norm = blocks_[block].branch.back().norm;
    return {norm, norm + 1};
  }

  std::string HuggingFaceConfig() const override { return FormatConfig(config_); }

 private:
  void Build() {
    shape_.model = "resnet";
    Builder builder(config_, &shape_);
    int64_t in = config_.widths[0];
    stem_ = builder.Add("conv1", "bn1", plan::kNoBlock, config_.channels, in, config_.small_stem ? 3 : 7,
                        config_.small_stem ? 1 : 2, false, false);
    if (!config_.small_stem) builder.Shrink(4);
    double base = builder.TakeFlops();
    std::map<std::tuple<int64_t, int64_t, int64_t, bool>, int> kinds;
    for (size_t stage = 0; stage < config_.depths.size(); ++stage) {
      for (int64_t i = 0; i < config_.depths[stage]; ++i) {
        const std::string name = absl::StrCat("layer", stage + 1, ".", i);
        const int64_t stride = stage > 0 && i == 0 ? 2 : 1, width = config_.widths[stage];
        const int64_t out = config_.bottleneck ? 4 * width : width;
        const int index = static_cast<int>(blocks_.size());
        Residual block = AddBranch(builder, name, index, in, width, out, stride);
        plan::Block described{.name = name, .flops_per_token = builder.TakeFlops()};
        if (stride != 1 || in != out) {
          block.shortcut = builder.Add(name + ".downsample.0", name + ".downsample.1", plan::kNoBlock, in,
                                       out, 1, stride, false, false);
          base += builder.TakeFlops();
        }
        described.axes = {{plan::Axis::kChannel, Chunks(width)}};
        const auto key = std::tuple(in, out, builder.size(), block.shortcut.has_value());
        described.kind = kinds.try_emplace(key, static_cast<int>(kinds.size())).first->second;
        builder.Shrink(stride);
        in = out;
        blocks_.push_back(std::move(block));
        shape_.blocks.push_back(std::move(described));
      }
    }
    shape_.parameters.push_back({"fc.weight", {config_.classes, in}, plan::kNoBlock, {}, true});
    shape_.parameters.push_back({"fc.bias", {config_.classes}, plan::kNoBlock, {}, false});
    shape_.base_flops_per_token = base + 2.0 * static_cast<double>(in * config_.classes);
  }

  // Cut are the channels between the first convolution and the second.
  Residual AddBranch(Builder& builder, const std::string& name, int block, int64_t in, int64_t width,
                     int64_t out, int64_t stride) {
    Residual residual;
    const auto add = [&](int number, int64_t from, int64_t to, int64_t kernel, int64_t step) {
      residual.branch.push_back(builder.Add(absl::StrCat(name, ".conv", number),
                                            absl::StrCat(name, ".bn", number), block, from, to, kernel, step,
                                            number == 2, number == 1));
    };
    if (config_.bottleneck) {  // the stride in the middle, as torchvision has it
      add(1, in, width, 1, 1);
      add(2, width, width, 3, stride);
      add(3, width, out, 1, 1);
    } else {
      add(1, in, width, 3, stride);
      add(2, width, out, 3, 1);
    }
    return residual;
  }

  at::Tensor Apply(const Weights& weights, const ConvNorm& layer, const at::Tensor& x,
                   NormSource source) const {
    const size_t mean = shape_.parameters.size() + static_cast<size_t>(layer.mean);
    const at::Tensor y = at::conv2d(x, weights[layer.conv], {}, at::IntArrayRef{layer.stride, layer.stride},
                                    at::IntArrayRef{layer.padding, layer.padding});
    return BatchNorm(y, {weights[layer.norm], weights[layer.norm + 1], weights[mean], weights[mean + 1]},
                     source);
  }

  BlockBody Body(const Weights& weights, int block, NormSource norm) const {
    const BlockBody::Run run = [this, &weights, block, norm](const at::Tensor& x, double branch_scale) {
      const Residual& residual = blocks_[block];
      at::Tensor y = x;
      for (size_t i = 0; i + 1 < residual.branch.size(); ++i) {
        y = Apply(weights, residual.branch[i], y, norm).relu_();
      }
      y = Apply(weights, residual.branch.back(), y, norm);
      const at::Tensor shortcut = residual.shortcut ? Apply(weights, *residual.shortcut, x, norm) : x;
      return at::add(shortcut, y, branch_scale).relu_();
    };
    if (!blocks_[block].shortcut) return run;  // x is no less than 0 already
    return {run, [this, &weights, block, norm](const at::Tensor& x) {
              return Apply(weights, *blocks_[block].shortcut, x, norm).relu_();
            }};
  }

  const ResNetConfig config_;
  plan::ModelShape shape_;
  ModelInput input_;
  ConvNorm stem_;
  std::vector<Residual> blocks_;
};

struct ResNetFamily final : PresetFamily<ResNet, ResNetConfig> {
  ResNetFamily() : PresetFamily(kModelType, AllPresets(), ParseConfig) {}
};

TESSERA_REGISTER_MODEL(ResNetFamily);

}  // namespace
}  // namespace tessera::worker

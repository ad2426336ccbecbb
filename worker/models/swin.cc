// Swin Transformer (Liu et al., 2021) for images: attention within windows, which every second block shifts.
// Parameter names are those of Hugging Face's files.
//
// Patch embedding, patch merging and the head lie outside the blocks. Inside a block heads and neurons are
// read from the weights, so a slice of a block runs as it is.
//
// Shapes: B batch, S side of the features, C channels, W side of a window, A = W * W positions of it, M
// windows of an image, N = B * M, H heads, K head size.
#include <torch/types.h>

#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/models/classes.h"
#include "worker/models/config_fields.h"
#include "worker/models/model.h"
#include "worker/models/preset_family.h"
#include "worker/nn/device_constant.h"
#include "worker/nn/linear.h"

namespace tessera::worker {
namespace {

struct SwinConfig {
  int64_t size = 224, channels = 3, patch = 4, embedding = 96, window = 7, mlp_ratio = 4, classes = 1000;
  std::vector<int64_t> depths = {2, 2, 6, 2}, heads = {3, 6, 12, 24};
  double epsilon = 1e-5;
};

const std::vector<std::pair<std::string, SwinConfig>>& AllPresets() {
  static const auto& presets = *new std::vector<std::pair<std::string, SwinConfig>>{
      {"swin-t", {}},  // 28,288,354 parameters
      // Images of 32 x 32: the first three stages of Swin-T on patches of 2 x 2 and windows of 4 x 4.
      {"swin-t-cifar",
       {.size = 32, .patch = 2, .window = 4, .classes = 10, .depths = {2, 2, 6}, .heads = {3, 6, 12}}},
      // For runs of minutes on a few cores.
      {"swin-micro-cifar",
       {.size = 32,
        .patch = 4,
        .embedding = 32,
        .window = 4,
        .classes = 10,
        .depths = {2, 4},
        .heads = {2, 4}}},
  };
  return presets;
}

int64_t SideOf(const SwinConfig& c, size_t stage) { return c.size / c.patch >> stage; }

absl::Status Check(const SwinConfig& c) {
  if (c.depths.size() != c.heads.size()) {
    return InvalidField("num_heads",
                        absl::StrCat("has ", c.heads.size(), " entries, depths has ", c.depths.size()));
  }
  if (c.size % c.patch != 0)
    return InvalidField("patch_size", absl::StrCat("does not divide image_size ", c.size));
  for (size_t stage = 0; stage < c.depths.size(); ++stage) {
    const bool whole = (c.size / c.patch) % (int64_t{1} << stage) == 0;
    if (const int64_t side = SideOf(c, stage); !whole || side % c.window != 0 || side == 0) {
      return InvalidField("window_size", absl::StrCat(c.window, " does not divide the ", side, " x ", side,
                                                      " features of stage ", stage + 1,
                                                      "; padded and smaller windows are not supported"));
    }
    if ((c.embedding << stage) % c.heads[stage] != 0) {
      return InvalidField("num_heads", absl::StrCat(c.heads[stage], " does not divide the ",
                                                    c.embedding << stage, " channels of stage ", stage + 1));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SwinConfig> ParseConfig(const std::string& text) {
  TESSERA_ASSIGN_OR_RETURN(const nlohmann::json object, ParseConfigObject(text));
  ConfigFields fields(object);
  SwinConfig c;
  c.size = fields.Integer("image_size", c.size);
  c.channels = fields.Integer("num_channels", c.channels);
  c.patch = fields.Integer("patch_size", c.patch);
  c.embedding = fields.Integer("embed_dim", c.embedding);
  c.window = fields.Integer("window_size", c.window);
  c.depths = fields.Integers("depths", c.depths);
  c.heads = fields.Integers("num_heads", c.heads);
  c.epsilon = fields.Number("layer_norm_eps", c.epsilon);
  const double ratio = fields.Number("mlp_ratio", 4);
  if (ratio != std::floor(ratio)) fields.status.Update(UnsupportedField("mlp_ratio", ratio));
  c.mlp_ratio = static_cast<int64_t>(ratio);
  const auto* labels = fields.Find("id2label");  // how Hugging Face writes the number of classes
  c.classes = labels != nullptr && labels->is_object() ? static_cast<int64_t>(labels->size())
                                                       : fields.Integer("num_labels", c.classes);
  fields.Only("hidden_act", "gelu");
  fields.Only("qkv_bias", true);
  fields.Only("use_absolute_embeddings", false);
  TESSERA_RETURN_IF_ERROR(fields.status);
  TESSERA_RETURN_IF_ERROR(Check(c));
  return c;
}

std::string FormatConfig(const SwinConfig& c) {
  nlohmann::ordered_json object;
  object["architectures"] = {"SwinForImageClassification"};
  object["model_type"] = "swin";
  object["image_size"] = c.size;
  object["num_channels"] = c.channels;
  object["patch_size"] = c.patch;
  object["embed_dim"] = c.embedding;
  object["window_size"] = c.window;
  object["depths"] = c.depths;
  object["num_heads"] = c.heads;
  object["mlp_ratio"] = static_cast<double>(c.mlp_ratio);
  object["layer_norm_eps"] = c.epsilon;
  object["hidden_act"] = "gelu";
  object["qkv_bias"] = true;
  object["use_absolute_embeddings"] = false;
  AddLabels(c.classes, object);
  return object.dump(2) + "\n";
}

// Order of a block's parameters; each weight's bias follows it.
enum Slot : int {
  kNormBefore = 0,
  kQuery = 2,
  kKey = 4,
  kValue = 6,
  kTable = 8,
  kOutput = 9,
  kNormAfter = 11,
  kUp = 13,
  kDown = 15,
};

constexpr int64_t kFfnChunks = 16;

struct Stage {
  int64_t side = 0, channels = 0, head_size = 0;
  int merging = -1;  // norm weight, bias and reduction between this stage and the next
};

struct BlockPlace {
  size_t stage = 0;
  int first = 0;  // its parameters
  bool shifted = false;
};

// [A * A] into the table of biases.
at::Tensor RelativeIndex(int64_t window) {
  const at::Tensor along = at::arange(window, at::kLong);
  const at::Tensor y = along.repeat_interleave(window), x = along.repeat({window});
  const auto apart = [&](const at::Tensor& at) { return at.unsqueeze(1) - at.unsqueeze(0) + window - 1; };
  return (apart(y) * (2 * window - 1) + apart(x)).reshape({-1});
}

// [M, 1, A, A]: far below any score between positions that only the shift has put into one window.
at::Tensor ShiftMask(int64_t side, int64_t window) {
  const at::Tensor along = at::arange(side, at::kLong);
  const at::Tensor region = along.ge(side - window).to(at::kLong) + along.ge(side - window / 2).to(at::kLong);
  const int64_t count = side / window;
  const at::Tensor of_window = (region.unsqueeze(1) * 3 + region.unsqueeze(0))
                                   .view({count, window, count, window})
                                   .transpose(1, 2)
                                   .reshape({-1, window * window});
  const at::Tensor other = of_window.unsqueeze(1) != of_window.unsqueeze(2);
  return other.to(at::kFloat).mul(-100).unsqueeze(1);
}

class Swin final : public Model {
 public:
  explicit Swin(const SwinConfig& config) : config_(config), index_(RelativeIndex(config.window)) {
    Build();
    input_ = ImageInput(config.classes, config.channels, config.size);
    for (const Stage& stage : stages_) masks_.emplace_back(ShiftMask(stage.side, config.window));
  }

  const plan::ModelShape& shape() const override { return shape_; }
  const ModelInput& input() const override { return input_; }

  void Initialize(int parameter, uint64_t seed, at::Tensor& out) const override {
    const plan::Parameter& p = shape_.parameters[parameter];
    const bool norm = absl::StrContains(p.name, "norm") && absl::EndsWith(p.name, ".weight");
    InitializeParameter(p, seed, norm ? 1 : 0, 0.02, out);
  }

  at::Tensor Loss(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    return ClassLoss(Logits(weights, batch, runner), batch);
  }

  at::Tensor Logits(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    const std::vector<int64_t> patch(2, config_.patch);
    at::Tensor x_BSSC = at::conv2d(batch.inputs, weights[0], weights[1], patch).permute({0, 2, 3, 1});
    x_BSSC = Norm(x_BSSC.contiguous().to(at::kFloat), weights, 2);  // the residual stream is fp32
    for (int block = 0; block < static_cast<int>(places_.size()); ++block) {
      x_BSSC = runner.Run(block, x_BSSC, [this, &weights, block](const at::Tensor& x, double branch_scale) {
        return Block(weights, places_[block], x, branch_scale);
      });
      const size_t stage = places_[block].stage;
      const bool last = block + 1 == static_cast<int>(places_.size()) || places_[block + 1].stage != stage;
      if (last && stages_[stage].merging >= 0) x_BSSC = Merge(weights, stages_[stage].merging, x_BSSC);
    }
    const int head = static_cast<int>(shape_.parameters.size()) - 2;
    const at::Tensor pooled = Norm(x_BSSC, weights, head - 2).mean({1, 2});
    return at::addmm(weights[head + 1], pooled, weights[head].t());
  }

  std::vector<int> BranchOutputs(int block) const override {
    const int first = places_[block].first;
    return {first + kOutput, first + kOutput + 1, first + kDown, first + kDown + 1};
  }

  std::string HuggingFaceConfig() const override { return FormatConfig(config_); }

 private:
  void Add(const std::string& name, std::vector<int64_t> dims, int block, std::vector<plan::Axis> axes = {}) {
    const bool decay = dims.size() > 1 && !absl::EndsWith(name, "bias_table");
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
    shape_.model = "swin";
    const SwinConfig& c = config_;
    AddPair("swin.embeddings.patch_embeddings.projection", {c.embedding, c.channels, c.patch, c.patch},
            plan::kNoBlock);
    AddPair("swin.embeddings.norm", {c.embedding}, plan::kNoBlock);
    double base = 2.0 * static_cast<double>(c.channels * c.size * c.size * c.embedding);
    for (size_t s = 0; s < c.depths.size(); ++s) {
      const int64_t channels = c.embedding << s;
      Stage stage{.side = SideOf(c, s), .channels = channels, .head_size = channels / c.heads[s]};
      for (int64_t i = 0; i < c.depths[s]; ++i) AddBlock(s, stage, i);
      if (s + 1 < c.depths.size()) {
        const std::string name = absl::StrCat("swin.encoder.layers.", s, ".downsample");
        stage.merging = static_cast<int>(shape_.parameters.size());
        AddPair(name + ".norm", {4 * channels}, plan::kNoBlock);
        Add(name + ".reduction.weight", {2 * channels, 4 * channels}, plan::kNoBlock);
        base += 4.0 * static_cast<double>(stage.side * stage.side * channels * channels);
      }
      stages_.push_back(stage);
    }
    const int64_t last = stages_.back().channels;
    AddPair("swin.layernorm", {last}, plan::kNoBlock);
    AddPair("classifier", {c.classes, last}, plan::kNoBlock);
    shape_.base_flops_per_token = base + 2.0 * static_cast<double>(last * c.classes);
  }

  void AddBlock(size_t s, const Stage& stage, int64_t i) {
    using plan::Axis;
    const int64_t channels = stage.channels, hidden = config_.mlp_ratio * channels, heads = config_.heads[s];
    const int block = static_cast<int>(places_.size());
    const std::string name = absl::StrCat("swin.encoder.layers.", s, ".blocks.", i);
    const bool shifted = i % 2 == 1 && stage.side > config_.window;
    places_.push_back({s, static_cast<int>(shape_.parameters.size()), shifted});
    AddPair(name + ".layernorm_before", {channels}, block);
    for (const char* part : {"query", "key", "value"}) {
      AddPair(absl::StrCat(name, ".attention.self.", part), {channels, channels}, block,
              {Axis::kHead, Axis::kNone});
    }
    const int64_t reach = 2 * config_.window - 1;
    Add(name + ".attention.self.relative_position_bias_table", {reach * reach, heads}, block,
        {Axis::kNone, Axis::kHead});
    AddPair(name + ".attention.output.dense", {channels, channels}, block, {Axis::kNone, Axis::kHead});
    AddPair(name + ".layernorm_after", {channels}, block);
    AddPair(name + ".intermediate.dense", {hidden, channels}, block, {Axis::kFfn, Axis::kNone});
    AddPair(name + ".output.dense", {channels, hidden}, block, {Axis::kNone, Axis::kFfn});
    const auto positions = static_cast<double>(stage.side * stage.side);
    const double matrices = static_cast<double>(channels) * static_cast<double>(4 * channels + 2 * hidden);
    const double scores = 2.0 * static_cast<double>(config_.window * config_.window * channels);
    int64_t chunks = kFfnChunks;
    while (hidden % chunks != 0) chunks /= 2;
    // Stages that shift have two kinds, in the order in which they come.
    const int kind = kinds_.try_emplace({s, shifted}, static_cast<int>(kinds_.size())).first->second;
    shape_.blocks.push_back({.name = name,
                             .flops_per_token = 2 * positions * (matrices + scores),
                             .axes = {{Axis::kHead, heads}, {Axis::kFfn, chunks}},
                             .kind = kind});
  }

  at::Tensor Norm(const at::Tensor& x, const Weights& weights, int weight) const {
    return at::layer_norm(x, {x.size(-1)}, weights[weight], weights[weight + 1], config_.epsilon);
  }

  at::Tensor Block(const Weights& weights, const BlockPlace& place, const at::Tensor& x_BSSC,
                   double branch_scale) const {
    const auto w = [&](int slot) -> const at::Tensor& { return weights[place.first + slot]; };
    const at::Tensor normed = Norm(x_BSSC, weights, place.first + kNormBefore);
    const at::Tensor x = at::add(x_BSSC, Attention(w, place, normed), branch_scale);
    const at::Tensor up = at::gelu(Linear(Norm(x, weights, place.first + kNormAfter), w(kUp), w(kUp + 1)));
    return at::add(x, Linear(up, w(kDown), w(kDown + 1)), branch_scale);
  }

  template <typename WeightOf>
  at::Tensor Attention(const WeightOf& w, const BlockPlace& place, at::Tensor x_BSSC) const {
    const Stage& stage = stages_[place.stage];
    const int64_t window = config_.window, count = stage.side / window, batch = x_BSSC.size(0),
                  shift = window / 2, positions = window * window;
    if (place.shifted) x_BSSC = x_BSSC.roll({-shift, -shift}, {1, 2});
    const at::Tensor windows_NAC =
        ForProducts(x_BSSC.view({batch, count, window, count, window, stage.channels})
                        .transpose(2, 3)
                        .reshape({-1, positions, stage.channels}));
    const auto project = [&](int slot) {  // [N, H, A, K]
      return Linear(windows_NAC, w(slot), w(slot + 1))
          .view({windows_NAC.size(0), positions, -1, stage.head_size})
          .transpose(1, 2);
    };
    const at::Tensor q = project(kQuery), k = project(kKey), v = project(kValue);
    const int64_t heads = q.size(1);
    const at::Tensor bias = w(kTable)
                                .index_select(0, index_.On(w(kTable).device()))
                                .view({positions, positions, heads})
                                .permute({2, 0, 1});
    at::Tensor scores =
        at::matmul(q * (1 / std::sqrt(static_cast<double>(stage.head_size))), k.transpose(-2, -1));
    scores = scores + bias;
    if (place.shifted) {
      scores = (scores.view({batch, count * count, heads, positions, positions}) +
                masks_[place.stage].On(scores.device()))
                   .view({-1, heads, positions, positions});
    }
    const at::Tensor mixed =
        at::matmul(scores.softmax(-1), v).transpose(1, 2).reshape({-1, positions, heads * stage.head_size});
    at::Tensor y = Linear(mixed, w(kOutput), w(kOutput + 1))
                       .view({batch, count, count, window, window, stage.channels})
                       .transpose(2, 3)
                       .reshape({batch, stage.side, stage.side, stage.channels});
    return place.shifted ? y.roll({shift, shift}, {1, 2}) : y;
  }

  // [B, S, S, C] -> [B, S/2, S/2, 2 C].
  at::Tensor Merge(const Weights& weights, int merging, const at::Tensor& x_BSSC) const {
    std::vector<at::Tensor> corners;
    for (int64_t column : {0, 1}) {
      for (int64_t row : {0, 1}) {
        corners.push_back(x_BSSC.slice(1, row, std::nullopt, 2).slice(2, column, std::nullopt, 2));
      }
    }
    return Linear(Norm(at::cat(corners, -1), weights, merging), weights[merging + 2]).to(at::kFloat);
  }

  const SwinConfig config_;
  const DeviceConstant index_;
  plan::ModelShape shape_;
  ModelInput input_;
  std::vector<Stage> stages_;
  std::vector<BlockPlace> places_;
  std::deque<DeviceConstant> masks_;  // by stage
  std::map<std::pair<size_t, bool>, int> kinds_;
};

struct SwinFamily final : PresetFamily<Swin, SwinConfig> {
  SwinFamily() : PresetFamily("swin", AllPresets(), ParseConfig) {}
};

TESSERA_REGISTER_MODEL(SwinFamily);

}  // namespace
}  // namespace tessera::worker

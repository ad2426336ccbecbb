// A small residual model with everything the real ones have: an embedding, blocks
// with a branch, parameters with and without decay, a head, ignored targets.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"

namespace tessera::worker {

class ToyModel final : public Model, public TextGenerator {
 public:
  static constexpr int64_t kVocab = 19, kHidden = 16;

  explicit ToyModel(int blocks, bool tied = false) : tied_(tied) {
    shape_.model = "toy";
    shape_.vocab_size = kVocab;
    Add("embed", {kVocab, kHidden}, plan::kNoBlock, true);
    for (int b = 0; b < blocks; ++b) {
      plan::Block block;
      block.name = absl::StrCat("layers.", b);
      block.flops_per_token = 2.0 * kHidden * kHidden;
      block.axes = {{plan::Axis::kFfn, kHidden}};
      shape_.blocks.push_back(block);
      Add(block.name + ".gain", {kHidden}, b, false);
      Add(block.name + ".up", {kHidden, kHidden}, b, true);
      shape_.parameters.back().axes = {plan::Axis::kFfn, plan::Axis::kNone};
      Add(block.name + ".down", {kHidden, kHidden}, b, true);
      shape_.parameters.back().axes = {plan::Axis::kNone, plan::Axis::kFfn};
    }
    Add("norm", {kHidden}, plan::kNoBlock, false);
    if (!tied_) Add("head", {kVocab, kHidden}, plan::kNoBlock, true);
    shape_.base_flops_per_token = 2.0 * kVocab * kHidden;
    input_.classes = input_.vocab_size = kVocab;
  }

  const plan::ModelShape& shape() const override { return shape_; }
  const ModelInput& input() const override { return input_; }

  void Initialize(int parameter, uint64_t seed, at::Tensor& out) const override {
    if (out.dim() == 1) {
      out.fill_(1);
      return;
    }
    const uint64_t start = 97 * static_cast<uint64_t>(parameter) + 31 * seed;
    const at::Tensor ramp = at::arange(out.numel(), at::kDouble) + static_cast<double>(start);
    out.copy_((at::sin(ramp * ramp * 0.37) * 0.3).view(out.sizes()));
  }

  at::Tensor Loss(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    const at::Tensor logits = Logits(weights, batch, runner);
    return at::cross_entropy_loss(logits.reshape({-1, kVocab}).to(at::kFloat), batch.targets.reshape({-1}),
                                  {}, at::Reduction::Sum, kIgnoredTarget);
  }

  at::Tensor Logits(const Weights& w, const Batch& batch, BlockRunner& runner) const override {
    at::Tensor x = at::embedding(w[0], batch.inputs);
    for (int b = 0; b < static_cast<int>(shape_.blocks.size()); ++b) {
      const BlockBody body = [&, b](const at::Tensor& input, double scale) {
        const at::Tensor inner = at::tanh(at::matmul(input * w[1 + 3 * b], w[2 + 3 * b].t()));
        const at::Tensor branch = at::matmul(inner, w[3 + 3 * b].t());
        return input + (scale == 1 ? branch : branch * scale);
      };
      x = runner.Run(b, x, body);
    }
    const size_t norm = 1 + 3 * shape_.blocks.size();
    return at::matmul(x * w[norm], (tied_ ? w[0] : w[norm + 1]).t());
  }

  // No position sees another: nothing is to be remembered.
  at::Tensor Decode(const Weights& w, const at::Tensor& tokens, BlockRunner& runner,
                    DecodingState& state) const override {
    state.positions += tokens.size(1);
    return Logits(w, {.inputs = tokens.narrow(1, tokens.size(1) - 1, 1)}, runner);
  }

  std::vector<int> BranchOutputs(int block) const override { return {3 + 3 * block}; }
  std::string HuggingFaceConfig() const override { return "{\"model_type\": \"toy\"}"; }

 private:
  void Add(const std::string& name, std::vector<int64_t> dims, int block, bool decay) {
    plan::Parameter parameter;
    parameter.name = name;
    parameter.dims = std::move(dims);
    parameter.block = block;
    parameter.decay = decay;
    shape_.parameters.push_back(std::move(parameter));
  }

  plan::ModelShape shape_;
  ModelInput input_;
  bool tied_;
};

// Token i is a fixed function of i. Every `ignore_every`-th sample (0: none) has half its targets ignored.
class ToyDataset final : public Dataset {
 public:
  static constexpr int64_t kLength = 8;

  explicit ToyDataset(int64_t tokens, int64_t ignore_every = 0)
      : tokens_(tokens), ignore_every_(ignore_every) {}
  int64_t samples() const override { return (tokens_ - 1) / kLength; }
  absl::Status Check(const ModelInput&) const override { return absl::OkStatus(); }
  absl::StatusOr<Batch> Read(std::span<const Sample> samples) const override {
    const int64_t rows = static_cast<int64_t>(samples.size()), length = kLength;
    Batch batch{at::empty({rows, length}, at::kLong), at::empty({rows, length}, at::kLong), 0};
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t < length; ++t) {
        batch.inputs.data_ptr<int64_t>()[r * length + t] = Token(samples[r].index * length + t);
        const bool ignored = ignore_every_ > 0 && samples[r].index % ignore_every_ == 0 && t < length / 2;
        batch.targets.data_ptr<int64_t>()[r * length + t] =
            ignored ? kIgnoredTarget : Token(samples[r].index * length + t + 1);
        batch.target_count += ignored ? 0 : 1;
      }
    }
    return batch;
  }
  Batch Of(const std::vector<int64_t>& indices) const {
    std::vector<Sample> samples;
    for (int64_t index : indices) samples.push_back({index});
    return *Read(samples);
  }

 private:
  static int64_t Token(int64_t i) { return (i * i * 7 + i * 3 + (i / 5)) % ToyModel::kVocab; }
  int64_t tokens_;
  int64_t ignore_every_;
};

// Runs every block.
class WholeRunner final : public BlockRunner {
 public:
  at::Tensor Run(int, const at::Tensor& x, const BlockBody& body) override { return body(x, 1); }
};

}  // namespace tessera::worker

#include "worker/profile/describe.h"

#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/nn/autocast.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

// Stands in for the trainer: a gradient is gone as soon as it is complete.
class FreeGradient final : public torch::autograd::PostAccumulateGradHook {
 public:
  void operator()(const torch::autograd::Variable& parameter) override { parameter.mutable_grad().reset(); }
};

// Of which blocks weights take gradients, and what of an axis is there.
struct Cut {
  bool frozen = false;
  plan::Axis axis = plan::Axis::kNone;
  int64_t chunks = 1, held = 1;
};

at::Tensor MakeWeight(const plan::Parameter& parameter, const Cut& cut = {}) {
  std::vector<int64_t> dims = parameter.dims;
  for (size_t d = 0; d < parameter.axes.size(); ++d) {
    if (cut.axis != plan::Axis::kNone && parameter.axes[d] == cut.axis)
      dims[d] = dims[d] / cut.chunks * cut.held;
  }
  at::Tensor weight = at::full(dims, 0.01, at::kFloat);
  if (cut.frozen) return weight;
  weight.requires_grad_(true);
  torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<FreeGradient>());
  return weight;
}

void Backward(at::Tensor output, at::Tensor gradient) {
  const torch::autograd::edge_list roots{torch::autograd::impl::gradient_edge(output)};
  output.reset();  // as in a whole model, where only those who saved it hold it
  torch::autograd::variable_list gradients{std::move(gradient)};
  const Autocast off(false);  // as in training, where forward alone has it
  torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Runs one block forward and backward for itself and skips the rest.
class BlockProbe final : public BlockRunner {
 public:
  explicit BlockProbe(int block) : BlockRunner({.norm = NormSource::kBatch}), block_(block) {}

  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override {
    if (block != block_) return body.Shortcut(x);
    Measure(x, body);  // once more below: the first run also fills the libraries' lazy buffers
    measured_ = Measure(x, body);
    if (!body.plain_shortcut()) {
      // What stands in for an absent block is counted with the rest, where every block is skipped.
      const BlockBody shortcut([&](const at::Tensor& in, double) { return body.Shortcut(in); });
      measured_.saved -= std::min(measured_.saved, Measure(x, shortcut).saved);
    }
    return body.Shortcut(x);
  }
  const plan::BlockActivation& measured() const { return measured_; }

 private:
  static plan::BlockActivation Measure(const at::Tensor& input, const BlockBody& body) {
    const at::AutoGradMode grad_mode(true);
    const at::Tensor x = input.detach().requires_grad_(true);
    plan::BlockActivation result;
    ResetPeakTensorBytes();
    const int64_t before = LiveTensorBytes();
    const auto start = std::chrono::steady_clock::now();
    at::Tensor y = body(x, 1.0);
    result.forward_seconds_per_token = SecondsSince(start);
    result.output = y.is_same(input) ? 0 : static_cast<int64_t>(y.nbytes());
    result.saved = LiveTensorBytes() - before;
    result.forward_transient = PeakTensorBytes() - before - result.saved;
    ResetPeakTensorBytes();
    at::Tensor gradient = at::ones_like(y);
    Backward(std::move(y), std::move(gradient));
    result.backward_transient = PeakTensorBytes() - before - result.saved;
    result.seconds_per_token = SecondsSince(start);  // of all of them: divided below
    x.mutable_grad().reset();
    return result;
  }

  const int block_;
  plan::BlockActivation measured_;
};

// Skips every block and notes what lives when the forward pass leaves the embedding and when the
// backward pass comes back to it.
class HeadProbe final : public BlockRunner {
 public:
  HeadProbe(int last_block, int64_t before)
      : BlockRunner({.norm = NormSource::kBatch}), last_block_(last_block), before_(before) {}

  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override {
    if (block != last_block_) return body.Shortcut(x);
    embedded_ = LiveTensorBytes() - before_;
    ResetPeakTensorBytes();
    x.register_hook([this](const at::Tensor& gradient) {
      peak_ = PeakTensorBytes() - before_;
      // The gradient itself belongs to the block it flows into.
      returned_ = LiveTensorBytes() - before_ - static_cast<int64_t>(gradient.nbytes());
      ResetPeakTensorBytes();  // from here on it is the embedding's backward
    });
    return x;
  }

  int64_t embedded() const { return embedded_; }
  int64_t peak() const { return peak_; }
  int64_t returned() const { return returned_; }

 private:
  const int last_block_;
  const int64_t before_;
  int64_t embedded_ = 0, peak_ = 0, returned_ = 0;
};

Batch MakeBatch(const ModelInput& input, int64_t batch, int64_t length) {
  // Different targets, so that no shortcut for equal ones can help.
  const auto different = [](int64_t count, int64_t classes) {
    return at::arange(count, at::kLong).remainder(classes);
  };
  if (input.vocab_size == 0) {
    return {at::ones({batch, input.channels, input.height, input.width}), different(batch, input.classes),
            batch};
  }
  const at::Tensor tokens = different(batch * length, input.vocab_size).view({batch, length});
  if (input.task == Task::kTextClass) return {tokens, different(batch, input.classes), batch};
  if (input.task != Task::kMaskedToken) return {tokens, tokens, batch * length};
  // Of the tokens 15 % are to be told; some more here.
  const at::Tensor told = different(batch * length, 6).view({batch, length}) == 0;
  return {tokens, at::where(told, tokens, at::scalar_tensor(kIgnoredTarget, at::kLong)),
          told.sum().item<int64_t>()};
}

Weights AllocateBuffers(const plan::ModelShape& shape) {
  Weights weights(shape.parameters.size());
  for (const plan::Buffer& buffer : shape.buffers) weights.push_back(at::full(buffer.dims, buffer.initial));
  return weights;
}

// Images stand for as many tokens as samples; fewer of the large ones are run.
int64_t MostSamples(const ModelInput& input, int64_t most_tokens) {
  if (input.vocab_size > 0) return most_tokens;
  constexpr int64_t kElements = int64_t{1} << 19, kLeast = 4;  // of a batch of images
  return std::max(kLeast, kElements / (input.channels * input.height * input.width));
}

struct MicroBatch {
  int64_t batch = 0, length = 0;
  int64_t tokens() const { return batch * length; }
};

// The size that is asked for when it has at most `exact` tokens; else two with about `most` tokens and
// half of it, of the same sequence length where it allows that.
std::vector<MicroBatch> SizesToMeasure(const MicroBatch& asked, int64_t exact, int64_t most) {
  if (asked.batch <= exact / asked.length) return {asked};
  const int64_t rows = std::min(asked.batch, most / asked.length);
  if (rows >= 2) return {{rows / 2, asked.length}, {rows, asked.length}};
  return {{1, most / 2}, {1, most}};
}

// Of a figure at one or two sizes, what it is at `tokens`.
class Line {
 public:
  Line(const std::vector<MicroBatch>& sizes, int64_t tokens) {
    if (sizes.size() < 2) return;
    const double first = static_cast<double>(sizes[0].tokens()),
                 second = static_cast<double>(sizes[1].tokens());
    reach_ = (static_cast<double>(tokens) - second) / (second - first);
  }

  template <typename Activation>
  int64_t Extend(const std::vector<Activation>& measured, int64_t Activation::*figure) const {
    const auto last = static_cast<double>(measured.back().*figure);
    const auto first = static_cast<double>(measured.front().*figure);
    return std::max<int64_t>(0, std::llround(last + reach_ * (last - first)));
  }

 private:
  double reach_ = 0;  // beyond the second size, in distances of the two
};

struct HeadActivation {
  int64_t base_saved = 0, transient = 0, end_peak = 0;
  double seconds_per_token = 0;
};

class Describer {
 public:
  Describer(const Model& model, const MicroBatch& size)
      : model_(model),
        batch_(MakeBatch(model.input(), size.batch, size.length)),
        weights_(AllocateBuffers(model.shape())) {
    Fill(plan::kNoBlock);
  }

  plan::BlockActivation MeasureBlock(int block, const Cut& cut = {}) {
    Fill(block, cut);
    BlockProbe probe(block);
    const at::NoGradGuard no_grad;
    model_.Loss(weights_, batch_, probe);
    Drop(block);
    return probe.measured();
  }

  HeadActivation MeasureHead() {
    const int last = static_cast<int>(model_.shape().blocks.size()) - 1;
    HeadActivation result;
    for (int run = 0; run < 2; ++run) {  // the second is free of first-time buffers
      const int64_t before = LiveTensorBytes();
      HeadProbe probe(last, before);
      const auto start = std::chrono::steady_clock::now();
      at::Tensor loss = model_.Loss(weights_, batch_, probe);
      {
        const Autocast off(false);
        loss.backward();
      }
      // Beyond the embeddings, what is still there when backward reaches the blocks stays to the
      // end of it. The embeddings may be gone by then here, but not where a block keeps them.
      const int64_t kept = std::max<int64_t>(0, probe.returned() - probe.embedded());
      result.base_saved = probe.embedded() + kept;
      result.transient = probe.peak() - result.base_saved;
      result.end_peak = PeakTensorBytes() - before;
      result.seconds_per_token = SecondsSince(start);
    }
    return result;
  }

 private:
  void Fill(int block, const Cut& cut = {}) {
    for (size_t i = 0; i < model_.shape().parameters.size(); ++i) {
      const plan::Parameter& parameter = model_.shape().parameters[i];
      if (parameter.block == block) weights_[i] = MakeWeight(parameter, cut);
    }
  }
  void Drop(int block) {
    for (size_t i = 0; i < model_.shape().parameters.size(); ++i) {
      if (model_.shape().parameters[i].block == block) weights_[i].reset();
    }
  }

  const Model& model_;
  const Batch batch_;
  Weights weights_;
};

plan::BlockActivation MeasureAtSizes(const Model& model, int block, const MicroBatch& asked,
                                     int64_t most_tokens, const Cut& cut) {
  const std::vector<MicroBatch> sizes = SizesToMeasure(asked, most_tokens, most_tokens);
  std::vector<plan::BlockActivation> measured;
  for (const MicroBatch& size : sizes) measured.push_back(Describer(model, size).MeasureBlock(block, cut));
  const Line line(sizes, asked.tokens());
  const auto tokens = static_cast<double>(sizes.back().tokens());
  return {.saved = line.Extend(measured, &plan::BlockActivation::saved),
          .forward_transient = line.Extend(measured, &plan::BlockActivation::forward_transient),
          .backward_transient = line.Extend(measured, &plan::BlockActivation::backward_transient),
          .seconds_per_token = measured.back().seconds_per_token / tokens,
          .forward_seconds_per_token = measured.back().forward_seconds_per_token / tokens,
          .output = line.Extend(measured, &plan::BlockActivation::output)};
}

plan::BlockActivation DescribeBlock(const Model& model, int block, const MicroBatch& asked,
                                    int64_t most_tokens) {
  plan::BlockActivation whole = MeasureAtSizes(model, block, asked, most_tokens, {});
  const plan::BlockActivation frozen = MeasureAtSizes(model, block, asked, most_tokens, {.frozen = true});
  whole.frozen_saved = frozen.saved;
  whole.frozen_forward_transient = frozen.forward_transient;
  whole.frozen_backward_transient = frozen.backward_transient;
  for (const plan::BlockAxis& axis : model.shape().blocks[block].axes) {
    const int64_t held = axis.chunks / 2;
    if (held < 1) continue;
    const plan::BlockActivation part = MeasureAtSizes(
        model, block, asked, most_tokens, {.axis = axis.axis, .chunks = axis.chunks, .held = held});
    const double scale = static_cast<double>(axis.chunks) / static_cast<double>(axis.chunks - held);
    const auto grows = [&](int64_t all, int64_t some) {
      return std::clamp<int64_t>(std::llround(static_cast<double>(all - some) * scale), 0, all);
    };
    whole.axes.push_back({.axis = axis.axis,
                          .saved = grows(whole.saved, part.saved),
                          .forward_transient = grows(whole.forward_transient, part.forward_transient),
                          .backward_transient = grows(whole.backward_transient, part.backward_transient)});
  }
  return whole;
}

// The loss works on chunks of logits of a fixed size: only where there are several chunks does its
// memory grow in a straight line. Small models need many tokens for that and can afford them.
int64_t HeadTokens(const plan::ModelShape& shape) {
  constexpr int64_t kElements = int64_t{1} << 25;  // of logits and hidden states
  constexpr int64_t kLeast = 512;
  const double vocabulary = static_cast<double>(std::max<int64_t>(1, shape.vocab_size));
  const double hidden = shape.base_flops_per_token / 2 / vocabulary;
  return std::max(kLeast, static_cast<int64_t>(kElements / (vocabulary + hidden)));
}

HeadActivation DescribeHead(const Model& model, const MicroBatch& asked, int64_t most_tokens) {
  const int64_t most = model.input().vocab_size > 0 ? HeadTokens(model.shape()) : most_tokens;
  const std::vector<MicroBatch> sizes = SizesToMeasure(asked, std::max(most, most_tokens), most);
  std::vector<HeadActivation> measured;
  for (const MicroBatch& size : sizes) measured.push_back(Describer(model, size).MeasureHead());
  const Line line(sizes, asked.tokens());
  return {line.Extend(measured, &HeadActivation::base_saved),
          line.Extend(measured, &HeadActivation::transient), line.Extend(measured, &HeadActivation::end_peak),
          measured.back().seconds_per_token / static_cast<double>(sizes.back().tokens())};
}

}  // namespace

absl::StatusOr<plan::ModelShape> DescribeModel(const Model& model, int64_t batch, int64_t sequence_length,
                                               int64_t most_tokens) {
  most_tokens = MostSamples(model.input(), most_tokens);
  if (batch < 1 || sequence_length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch ", batch, " and sequence_length ", sequence_length, " must be at least 1"));
  }
  InstallMemoryCounter();
  plan::ModelShape shape = model.shape();
  shape.activations.batch = batch;
  shape.activations.sequence_length = sequence_length;
  try {
    const MicroBatch asked{batch, sequence_length};
    for (size_t block = 0; block < shape.blocks.size(); ++block) {
      const size_t kind = static_cast<size_t>(shape.blocks[block].kind);
      if (kind < shape.activations.kinds.size()) continue;
      shape.activations.kinds.resize(kind + 1);
      shape.activations.kinds[kind] = DescribeBlock(model, static_cast<int>(block), asked, most_tokens);
    }
    const HeadActivation head = DescribeHead(model, asked, most_tokens);
    shape.activations.base_saved = head.base_saved;
    shape.activations.head_transient = head.transient;
    shape.activations.end_peak = head.end_peak;
    shape.activations.head_seconds_per_token = head.seconds_per_token;
  } catch (const c10::Error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot run one block of ", shape.model, ": ", error.what_without_backtrace()));
  }
  return shape;
}

}  // namespace tessera::worker

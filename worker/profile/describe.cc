#include "worker/profile/describe.h"

#include <torch/autograd.h>
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
#include "worker/profile/probes.h"
#include "worker/profile/process_memory.h"

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
    return Extend(measured.front().*figure, measured.back().*figure);
  }
  plan::PassBytes Extend(const plan::PassBytes& first, const plan::PassBytes& last) const {
    return {Extend(first.saved, last.saved), Extend(first.forward_transient, last.forward_transient),
            Extend(first.backward_transient, last.backward_transient)};
  }
  int64_t Extend(int64_t first, int64_t last) const {
    return std::max<int64_t>(
        0, std::llround(static_cast<double>(last) + reach_ * static_cast<double>(last - first)));
  }

 private:
  double reach_ = 0;  // beyond the second size, in distances of the two
};

struct HeadActivation {
  int64_t base_saved = 0, transient = 0, end_peak = 0;
  double seconds_per_token = 0;
};

// Holds what is outside the blocks, and a block while it is looked at.
class Describer {
 public:
  explicit Describer(const Model& model) : model_(model), weights_(AllocateBuffers(model.shape())) {
    Fill(plan::kNoBlock);
  }

  BlockRuns MeasureBlock(int block, const MicroBatch& size, const Cut& cut = {}) {
    Fill(block, cut);
    BlockProbe probe(block, /*first=*/!cut.frozen && cut.axis == plan::Axis::kNone);
    const at::NoGradGuard no_grad;
    probe.Measure(model_, weights_, BatchOf(size));
    Drop(block);
    return probe.runs();
  }

  HeadActivation MeasureHead(const MicroBatch& size) {
    const int last = static_cast<int>(model_.shape().blocks.size()) - 1;
    // First with one text, or as it is, so that what is measured is free of first-time buffers.
    RunHead(model_.input().vocab_size > 0 ? MicroBatch{1, size.length} : size, last);
    return RunHead(size, last);
  }

  // Steps that are alike, as in training, of what is outside the blocks and the first one.
  plan::ProcessMemory MeasureProcess(const MicroBatch& size) {
    Fill(0);
    const Batch batch = BatchOf(size);
    const plan::ProcessMemory memory = worker::MeasureProcess([&] {
      FirstBlock runner;
      at::Tensor loss = model_.Loss(weights_, batch, runner);
      const Autocast off(false);
      loss.backward();
    });
    Drop(0);
    return memory;
  }

 private:
  Batch BatchOf(const MicroBatch& size) const { return MakeBatch(model_.input(), size.batch, size.length); }

  HeadActivation RunHead(const MicroBatch& size, int last) {
    const Batch batch = BatchOf(size);
    const int64_t before = LiveTensorBytes();
    HeadProbe probe(last, before);
    const auto start = std::chrono::steady_clock::now();
    at::Tensor loss = model_.Loss(weights_, batch, probe);
    {
      const Autocast off(false);
      loss.backward();
    }
    // Beyond the embeddings, what is still there when backward reaches the blocks stays to the
    // end of it. The embeddings may be gone by then here, but not where a block keeps them.
    const int64_t kept = std::max<int64_t>(0, probe.returned() - probe.embedded());
    return {.base_saved = probe.embedded() - probe.shortcuts() + kept,
            .transient = probe.peak() - probe.embedded() - kept,
            .end_peak = PeakTensorBytes() - before,
            .seconds_per_token = SecondsSince(start)};
  }

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
  Weights weights_;
};

// At the size asked for; seconds are for each token.
BlockRuns MeasureAtSizes(Describer& describer, int block, const MicroBatch& asked, int64_t most_tokens,
                         const Cut& cut) {
  const std::vector<MicroBatch> sizes = SizesToMeasure(asked, most_tokens, most_tokens);
  std::vector<BlockRuns> measured;
  for (const MicroBatch& size : sizes) measured.push_back(describer.MeasureBlock(block, size, cut));
  const Line line(sizes, asked.tokens());
  const BlockRuns &first = measured.front(), &last = measured.back();
  const auto tokens = static_cast<double>(sizes.back().tokens());
  return {.plain = {.bytes = line.Extend(first.plain.bytes, last.plain.bytes),
                    .output = line.Extend(first.plain.output, last.plain.output),
                    .seconds = last.plain.seconds / tokens,
                    .forward_seconds = last.plain.forward_seconds / tokens},
          .checkpointed = line.Extend(first.checkpointed, last.checkpointed),
          .shortcut = line.Extend(first.shortcut, last.shortcut)};
}

// What goes with all chunks of an axis, from the bytes with all of them and with `held`.
plan::PassBytes OfAxis(const plan::PassBytes& all, const plan::PassBytes& some, int64_t chunks,
                       int64_t held) {
  const double scale = static_cast<double>(chunks) / static_cast<double>(chunks - held);
  const auto grows = [scale](int64_t of_all, int64_t of_some) {
    return std::clamp<int64_t>(std::llround(static_cast<double>(of_all - of_some) * scale), 0, of_all);
  };
  return {grows(all.saved, some.saved), grows(all.forward_transient, some.forward_transient),
          grows(all.backward_transient, some.backward_transient)};
}

plan::BlockActivation DescribeBlock(Describer& describer, const plan::ModelShape& shape, int block,
                                    const MicroBatch& asked, int64_t most_tokens) {
  const BlockRuns whole = MeasureAtSizes(describer, block, asked, most_tokens, {});
  const BlockRuns frozen = MeasureAtSizes(describer, block, asked, most_tokens, {.frozen = true});
  plan::BlockActivation result{.saved = whole.plain.bytes.saved,
                               .forward_transient = whole.plain.bytes.forward_transient,
                               .backward_transient = whole.plain.bytes.backward_transient,
                               .seconds_per_token = whole.plain.seconds,
                               .forward_seconds_per_token = whole.plain.forward_seconds,
                               .output = whole.plain.output,
                               .frozen = frozen.plain.bytes,
                               .checkpointed = whole.checkpointed,
                               .frozen_checkpointed = frozen.checkpointed,
                               .shortcut = whole.shortcut};
  for (const plan::BlockAxis& axis : shape.blocks[block].axes) {
    const int64_t held = axis.chunks / 2;
    if (held < 1) continue;
    const BlockRuns part = MeasureAtSizes(describer, block, asked, most_tokens,
                                          {.axis = axis.axis, .chunks = axis.chunks, .held = held});
    const plan::PassBytes plain = OfAxis(whole.plain.bytes, part.plain.bytes, axis.chunks, held);
    result.axes.push_back({.axis = axis.axis,
                           .saved = plain.saved,
                           .forward_transient = plain.forward_transient,
                           .backward_transient = plain.backward_transient,
                           .checkpointed = OfAxis(whole.checkpointed, part.checkpointed, axis.chunks, held)});
  }
  return result;
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

HeadActivation DescribeHead(Describer& describer, const Model& model, const MicroBatch& asked,
                            int64_t most_tokens) {
  const int64_t most = model.input().vocab_size > 0 ? HeadTokens(model.shape()) : most_tokens;
  const std::vector<MicroBatch> sizes = SizesToMeasure(asked, std::max(most, most_tokens), most);
  std::vector<HeadActivation> measured;
  for (const MicroBatch& size : sizes) measured.push_back(describer.MeasureHead(size));
  const Line line(sizes, asked.tokens());
  return {line.Extend(measured, &HeadActivation::base_saved),
          line.Extend(measured, &HeadActivation::transient), line.Extend(measured, &HeadActivation::end_peak),
          measured.back().seconds_per_token / static_cast<double>(sizes.back().tokens())};
}

// So few tokens that a step is short, of large models too: weights and their gradients, which are most of
// what the allocator moves, are as large as with many.
MicroBatch SizeOfProcess(const plan::ModelShape& shape, const MicroBatch& asked, int64_t most_tokens) {
  constexpr double kFlops = 2e10;  // of a step's forward pass
  constexpr int64_t kLeast = 16, kMost = 256;
  const double each = shape.base_flops_per_token + shape.blocks.front().flops_per_token;
  const auto affordable = static_cast<int64_t>(std::min<double>(kMost, kFlops / std::max(1.0, each)));
  const int64_t tokens = std::min(most_tokens, std::max(kLeast, affordable));
  return SizesToMeasure(asked, tokens, tokens).back();
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
    Describer describer(model);
    for (size_t block = 0; block < shape.blocks.size(); ++block) {
      const size_t kind = static_cast<size_t>(shape.blocks[block].kind);
      if (kind < shape.activations.kinds.size()) continue;
      shape.activations.kinds.resize(kind + 1);
      shape.activations.kinds[kind] =
          DescribeBlock(describer, shape, static_cast<int>(block), asked, most_tokens);
    }
    const HeadActivation head = DescribeHead(describer, model, asked, most_tokens);
    shape.activations.base_saved = head.base_saved;
    shape.activations.head_transient = head.transient;
    shape.activations.end_peak = head.end_peak;
    shape.activations.head_seconds_per_token = head.seconds_per_token;
    shape.process = describer.MeasureProcess(SizeOfProcess(shape, asked, most_tokens));
  } catch (const c10::Error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot run one block of ", shape.model, ": ", error.what_without_backtrace()));
  }
  return shape;
}

}  // namespace tessera::worker

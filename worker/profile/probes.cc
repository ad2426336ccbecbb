#include "worker/profile/probes.h"

#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/types.h>

#include <chrono>
#include <utility>

#include "worker/nn/autocast.h"
#include "worker/parallel/checkpointed_block.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

void Backward(at::Tensor output, at::Tensor gradient) {
  const torch::autograd::edge_list roots{torch::autograd::impl::gradient_edge(output)};
  output.reset();  // as in a whole model, where only those who saved it hold it
  torch::autograd::variable_list gradients{std::move(gradient)};
  const Autocast off(false);  // as in training, where forward alone has it
  torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                        /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

BlockRun RunOnce(const at::Tensor& input, const BlockBody& body) {
  const at::AutoGradMode grad_mode(true);
  const at::Tensor x = input.detach().requires_grad_(true);
  BlockRun run;
  ResetPeakTensorBytes();
  const int64_t before = LiveTensorBytes();
  const auto start = std::chrono::steady_clock::now();
  at::Tensor y = body(x, 1.0);
  run.forward_seconds = SecondsSince(start);
  run.output = y.is_same(input) ? 0 : static_cast<int64_t>(y.nbytes());
  run.bytes.saved = LiveTensorBytes() - before;
  run.bytes.forward_transient = PeakTensorBytes() - before - run.bytes.saved;
  ResetPeakTensorBytes();
  at::Tensor gradient = at::ones_like(y);
  Backward(std::move(y), std::move(gradient));
  run.bytes.backward_transient = PeakTensorBytes() - before - run.bytes.saved;
  run.seconds = SecondsSince(start);
  x.mutable_grad().reset();
  return run;
}

}  // namespace

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void BlockProbe::Measure(const Model& model, const Weights& weights, const Batch& batch) {
  try {
    model.Loss(weights, batch, *this);
  } catch (const Measured&) {  // NOLINT(bugprone-empty-catch): Run has measured, and left so
  }
}

at::Tensor BlockProbe::Run(int block, const at::Tensor& x, const BlockBody& body) {
  if (block != block_) return body.Shortcut(x);
  if (first_) body(x, 1.0);
  const BlockBody again([&](const at::Tensor& in, double scale) { return RunCheckpointed(body, in, scale); });
  runs_.checkpointed = RunOnce(x, again).bytes;
  runs_.plain = RunOnce(x, body);  // the one that is timed comes last
  if (!body.plain_shortcut()) {
    const BlockBody shortcut([&](const at::Tensor& in, double) { return body.Shortcut(in); });
    runs_.shortcut = RunOnce(x, shortcut).bytes;
  }
  throw Measured();
}

at::Tensor HeadProbe::Run(int block, const at::Tensor& x, const BlockBody& body) {
  if (block == last_block_) {
    embedded_ = LiveTensorBytes() - before_;
    ResetPeakTensorBytes();
  }
  // The last block's input is the beginning of the blocks' backward, the first one's its end; they may be one
  // tensor.
  if (block == 0 || block == last_block_) {
    x.register_hook([this](const at::Tensor& gradient) { CameBack(gradient); });
  }
  if (block == last_block_) return x;
  const int64_t before = LiveTensorBytes();
  at::Tensor y = body.Shortcut(x);
  shortcuts_ += LiveTensorBytes() - before;
  return y;
}

void HeadProbe::CameBack(const at::Tensor& gradient) {
  if (peak_ == 0) {
    peak_ = PeakTensorBytes() - before_;
    returned_ = LiveTensorBytes() - before_ - static_cast<int64_t>(gradient.nbytes());
  }
  ResetPeakTensorBytes();
}

}  // namespace tessera::worker

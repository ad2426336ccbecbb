// How a model's residual blocks are run: all of them, some, once more in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include "worker/nn/batch_norm.h"

namespace tessera::worker {

// What a forward pass is for.
struct Pass {
  NormSource norm = NormSource::kRunning;  // over ModelShape::buffers
};

// A residual block: its computation, and its shortcut, which stands in for it where it is absent.
class BlockBody {
 public:
  // x -> the block's output. Residual branches are multiplied by branch_scale (1 leaves the arithmetic
  // untouched). Reads the block's weights when called.
  using Run = std::function<at::Tensor(const at::Tensor& x, double branch_scale)>;
  // Needs no weights of the block; those outside the blocks (a strided shortcut's) are always there.
  using Bypass = std::function<at::Tensor(const at::Tensor& x)>;

  template <typename F, typename = std::enable_if_t<std::is_convertible_v<F, Run>>>
  BlockBody(F run) : run_(std::move(run)) {}  // NOLINT(google-explicit-constructor): a block is its body
  BlockBody(Run run, Bypass shortcut) : run_(std::move(run)), shortcut_(std::move(shortcut)) {}

  at::Tensor operator()(const at::Tensor& x, double branch_scale) const { return run_(x, branch_scale); }
  at::Tensor Shortcut(const at::Tensor& x) const { return shortcut_ ? shortcut_(x) : x; }
  bool plain_shortcut() const { return !shortcut_; }  // x itself

 private:
  Run run_;
  Bypass shortcut_;  // empty: x itself
};

class BlockRunner {
 public:
  explicit BlockRunner(Pass pass = {}) : pass_(pass) {}
  virtual ~BlockRunner() = default;
  // Runs, skips (returns body.Shortcut(x)), recomputes or fetches the block. The body may be kept and
  // called again until backward is done: it holds what it needs beyond the weights.
  virtual at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) = 0;
  const Pass& pass() const { return pass_; }

 private:
  Pass pass_;
};

}  // namespace tessera::worker

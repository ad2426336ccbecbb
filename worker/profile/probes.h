// Runners that pass through a model to see what one block, or all that lies outside the blocks, needs.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>

#include "scheduler/plan/model_shape.h"
#include "worker/models/block_runner.h"
#include "worker/models/model.h"

namespace tessera::worker {

double SecondsSince(std::chrono::steady_clock::time_point start);

struct BlockRun {
  plan::PassBytes bytes;
  int64_t output = 0;  // of the bytes saved
  double seconds = 0, forward_seconds = 0;
};

// What a block needs as it is, with activation checkpointing, and where it is absent.
struct BlockRuns {
  BlockRun plain;
  plan::PassBytes checkpointed, shortcut;
};

// Runs one block forward and backward for itself, skips those before it and leaves out what follows. The
// memory counter is installed. first: of its kind and size; lazy buffers are filled before anything is
// measured.
class BlockProbe final : public BlockRunner {
 public:
  BlockProbe(int block, bool first)
      : BlockRunner({.norm = NormSource::kBatch}), block_(block), first_(first) {}
  void Measure(const Model& model, const Weights& weights, const Batch& batch);
  const BlockRuns& runs() const { return runs_; }

 private:
  struct Measured {
  };  // thrown where the pass has nothing more to tell: a large head takes as long as a block

  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override;

  const int block_;
  const bool first_;
  BlockRuns runs_;
};

// Runs the first block and skips the others.
class FirstBlock final : public BlockRunner {
 public:
  FirstBlock() : BlockRunner({.norm = NormSource::kBatch}) {}
  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override {
    return block == 0 ? body(x, 1.0) : body.Shortcut(x);
  }
};

// Skips every block and notes, in bytes above `before`, what lives when the forward pass leaves the embedding
// and when the backward pass comes back to the blocks. After it the peak is that of what follows them in
// backward.
class HeadProbe final : public BlockRunner {
 public:
  HeadProbe(int last_block, int64_t before)
      : BlockRunner({.norm = NormSource::kBatch}), last_block_(last_block), before_(before) {}
  at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override;

  int64_t embedded() const {
    return embedded_;
  }  // before the last block, what stands in for the others included
  int64_t shortcuts() const { return shortcuts_; }  // what stands in for the others
  int64_t peak() const { return peak_; }            // from there until backward is there again
  int64_t returned() const { return returned_; }    // what is left then, without the gradient that comes in

 private:
  void CameBack(const at::Tensor& gradient);

  const int last_block_;
  const int64_t before_;
  int64_t embedded_ = 0, shortcuts_ = 0, peak_ = 0, returned_ = 0;
};

}  // namespace tessera::worker

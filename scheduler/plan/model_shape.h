// What the planner knows of a model: its parameters, which of them belong to
// which residual block, and which dimension is cut along which axis. A model
// publishes one ModelShape; the planner and every rank derive the same mask
// plan from it. Pure data: no tensors, no files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::plan {

// What a dimension of a parameter indexes, if the planner may cut it.
enum class Axis : uint8_t { kNone = 0, kHead = 1, kFfn = 2, kChannel = 3 };

inline constexpr int kNoBlock = -1;  // outside the blocks: embeddings, final norm, head

struct Parameter {
  std::string name;           // Hugging Face name, "model.layers.0.mlp.up_proj.weight"
  std::vector<int64_t> dims;  // whole, uncut
  int block = kNoBlock;       // index into ModelShape::blocks
  std::vector<Axis> axes;     // one per dimension; empty: nothing can be cut
  bool decay = true;          // weight decay applies

  int64_t elements() const;
};

// A tensor that is no parameter: a batch norm's running mean or variance. Tiny and on every rank, so
// neither planned nor part of the fingerprint.
struct Buffer {
  std::string name;
  std::vector<int64_t> dims;
  double initial = 0;  // all elements
  int block = kNoBlock;
};

// An axis of a block, in pieces that may be held or withheld: whole key-value
// groups of heads, neurons of the FFN, inner channels of a basic block.
struct BlockAxis {
  Axis axis = Axis::kNone;
  int64_t chunks = 0;
};

struct Block {
  std::string name;            // "model.layers.0"
  bool maskable = true;        // an absent block is its shortcut; false when it has none
  double flops_per_token = 0;  // of the forward pass (per sample for images)
  std::vector<BlockAxis> axes;
  int kind = 0;  // blocks of one kind cost the same; index into ActivationProfile::kinds
};

// Bytes of counted tensors, measured at one micro-batch by running one block whose
// parameter gradients are freed as soon as they are complete. 0 saved: not measured.
struct PassBytes {
  int64_t saved = 0;               // kept for backward, the block's output included
  int64_t forward_transient = 0;   // peak of the forward pass above what stays
  int64_t backward_transient = 0;  // peak of the backward pass above what was saved, gradients included
};

// What of a block's bytes belongs to the chunks of an axis, and goes with them in proportion.
struct AxisActivation {
  Axis axis = Axis::kNone;
  int64_t saved = 0;
  int64_t forward_transient = 0;
  int64_t backward_transient = 0;
  PassBytes checkpointed;
};

struct BlockActivation {
  int64_t saved = 0;  // as PassBytes has them
  int64_t forward_transient = 0;
  int64_t backward_transient = 0;
  double seconds_per_token = 0;  // forward and backward on one thread (per sample for images); 0: unknown
  double forward_seconds_per_token = 0;  // of them
  int64_t output = 0;                    // of saved
  PassBytes frozen;                      // the same with weights that take no gradients
  // With activation checkpointing the input alone is kept, and backward runs the block forward once more.
  PassBytes checkpointed;
  PassBytes frozen_checkpointed;
  PassBytes shortcut;                // of what stands in where the block is absent; 0: its input itself
  std::vector<AxisActivation> axes;  // of the block and of it checkpointed, with trained weights
};

// Peak of a micro-step above model states = the larger of end_peak and
//   sum of `saved` over the blocks, held or their shortcuts, + base_saved + the largest of head_transient and
//   the blocks' transients.
struct ActivationProfile {
  int64_t batch = 0;            // samples per micro-step
  int64_t sequence_length = 0;  // tokens per sample
  std::vector<BlockActivation> kinds;
  int64_t base_saved = 0;      // lives through the whole backward pass: the embeddings
  int64_t head_transient = 0;  // final norm, chunked loss and the start of backward, gradients included
  int64_t end_peak = 0;        // at the end of backward, when no block's activations are left
  double head_seconds_per_token = 0;  // everything outside the blocks, as above
};

// What a worker's process takes beside counted tensors, of the memory they live in; 0 = not measured.
struct ProcessMemory {
  int64_t base = 0;  // bytes as it holds no tensor: code, libraries, their buffers and threads
  double slack = 0;  // of the allocator, pages without a tensor: ratio to the counted bytes at the peak
  int64_t communicator = 0;  // bytes of each: the world's, and one for each set of holders the worker is in
};

struct ModelShape {
  std::string model;  // registered family, "llama"
  int64_t vocab_size = 0;
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  std::vector<Block> blocks;
  double base_flops_per_token = 0;  // forward, everything outside the blocks
  ActivationProfile activations;    // kinds empty: not measured
  ProcessMemory process;
  int64_t training_samples = 0;  // of the data that the job names; 0: not known

  int64_t elements() const;  // of all parameters
  int64_t block_elements(int block) const;
  double flops_per_token() const;  // forward
  // Of everything but buffers, activations, process and samples: equal fingerprints give equal mask plans.
  uint64_t Fingerprint() const;
};

}  // namespace tessera::plan

// Measures what a model needs beyond its weights, by running one block of each kind.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "scheduler/plan/model_shape.h"
#include "worker/models/model.h"

namespace tessera::worker {

// Blocks are run with at most this many tokens, whatever the micro-batch.
inline constexpr int64_t kMeasuredTokens = 2048;

// The model's shape with the activations of one micro-batch. One of at most `most_tokens` is run as it
// is. For a larger one every figure is taken at two smaller sizes and continued in a straight line
// through both: activations grow with the tokens, gradients of parameters do not. Installs the
// memory counter; allocates the part outside the blocks and one block, never the whole
// model. Then the process's own memory (process_memory.h). The same bytes each time, but
// for the process, for the same number of threads (attention keeps a
// buffer per thread). Not to be run beside other tensor work.
//
// What the figures mean, for a trainer that copies parameter gradients away and
// frees them in post-accumulate hooks. Peak of a micro-step above weights, gradients and optimizer =
// the larger of end_peak and
//   SUM of saved over the blocks (of an absent one its shortcut's) + base_saved + the largest of
//     head_transient, forward_transient and backward_transient of any of them.
//   saved               what a block keeps for backward, its output included
//   base_saved          what lives through the whole backward pass: the tokens' embeddings and, with
//                       a tied head, the embedding's gradient
//   head_transient      final norm, chunked loss and the start of backward, the head's gradient included
//   end_peak            the end of backward, when the blocks' activations are gone: the embedding's
//                       gradient, with a tied head beside the head's
//   seconds_per_token   of the larger size; the only figures that differ from run to run
//   output              of a block, part of what it saves
//   backward_transient  above everything saved, incoming and outgoing gradients and those of a layer's
//                       parameters included
//   frozen              the same with weights that take no gradients, as of absent units under backward
//   masking checkpointed        the same where the block keeps its input and runs again in backward axes what
//   of these goes with the chunks of an axis: measured with half of them
//
// ResourceExhausted: not enough memory. InvalidArgument: batch or length below 1.
absl::StatusOr<plan::ModelShape> DescribeModel(const Model& model, int64_t batch, int64_t sequence_length,
                                               int64_t most_tokens = kMeasuredTokens);

}  // namespace tessera::worker

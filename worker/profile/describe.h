// Measures what a model needs beyond its weights, by running one block of each kind.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "scheduler/plan/model_shape.h"
#include "worker/models/model.h"

namespace tessera::worker {

// The model's shape with activations measured at one micro-batch. Installs the
// memory counter; allocates the part outside the blocks and one block, never the whole
// model. The same bytes each time for the same number of threads (attention keeps a
// buffer per thread). Not to be run beside other tensor work.
//
// What the figures mean, for a trainer that copies parameter gradients away and
// frees them in post-accumulate hooks. Peak of a micro-step above weights, gradients and optimizer =
//   SUM of saved over the held blocks + base_saved + the largest of
//     head_transient, forward_transient and backward_transient of any held block.
//   saved               what a block keeps for backward, its output included
//   base_saved          what lives through the whole backward pass: the tokens' embeddings and, with
//                       a tied head, the embedding's gradient
//   head_transient      final norm, chunked loss and the start of backward, the head's gradient included
//   backward_transient  above everything saved, incoming and outgoing gradients and those of
//                       a layer's parameters included
//
// ResourceExhausted: not enough memory. InvalidArgument: batch or length below 1.
absl::StatusOr<plan::ModelShape> DescribeModel(const Model& model, int64_t batch, int64_t sequence_length);

}  // namespace tessera::worker

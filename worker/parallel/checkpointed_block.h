// Activation checkpointing (Chen et al., arXiv 1604.06174): a block keeps its input alone and runs
// again in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/models/model.h"

namespace tessera::worker {

// body(x, branch_scale), with the same gradients bit for bit: the second run sees the state that the CPU
// generator had in the first. x must require gradients for the block's parameters to get theirs.
at::Tensor RunCheckpointed(const BlockBody& body, const at::Tensor& x, double branch_scale);

}  // namespace tessera::worker

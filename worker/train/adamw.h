// AdamW with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2)
// over the flat tensors of a unit.
#pragma once

#include <cstdint>

#include "worker/parallel/unit_store.h"

namespace tessera::worker {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
};

// step counts from 1. The unit's gradients are divided by `divisor` on the way, in place.
// A pure function of its arguments: holders with equal inputs get equal bits.
void AdamWStep(UnitState& unit, const AdamWOptions& options, int64_t step, double learning_rate,
               double divisor);

}  // namespace tessera::worker

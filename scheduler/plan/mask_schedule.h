// Masks that change while training (sdp.md: resampling). Every so many steps the units trade holders: one
// gets the holders of another that is just as large and costs as much. So every worker holds as much as
// before, the holder sets, and with them communicators and spectral gap, stay, and over time each unit comes
// to all workers that hold its like. Pure: every rank and the scheduler derive the same masks for a step.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/plan/cost.h"
#include "scheduler/plan/mask_plan.h"

namespace tessera::plan {

struct MaskSchedule {
  int64_t every = 0;  // steps; 0: masks stay
  uint64_t seed = 1;
};

// So many masks, and the sequence begins anew: what is predicted for all of them holds for a run of any
// length.
inline constexpr int64_t kMaskPeriods = 64;

// Of the step after `finished` ones, 0 to kMaskPeriods - 1.
int64_t MaskPeriod(const MaskSchedule& schedule, int64_t finished);

// Blocks that are alike (same kind, same units) trade the holders of all their units, and then, within an
// axis of a block, chunks of one size trade. Period 0: `first` itself.
MaskPlan MasksOfPeriod(const ModelShape& shape, const MaskPlan& first, uint64_t seed, int64_t period);

// Whether there are units to trade; always true where every worker holds everything, as nothing is to be.
bool CanResample(const ModelShape& shape, const MaskPlan& first);

// In their order, those that a run of `steps` has.
std::vector<MaskPlan> MasksOfRun(const ModelShape& shape, const MaskPlan& first, const MaskSchedule& schedule,
                                 int64_t steps);

// Elements [first, first + count), in row order (the cut dimension outermost), of a slice go from one worker
// to another, weights and moments.
struct StateMove {
  int from = 0, to = 0;
  int slice = 0;  // index into MaskPlan::slices(), the same before and after
  int64_t first = 0, count = 0;
};

// What `after` gives to workers that do not have it under `before`, by block (those outside the blocks
// first), slice, receiver. Whoever has sent least so far is asked. sharded: a holder keeps its shard alone
// (cost.h). Precondition: the two have the same units and slices.
std::vector<StateMove> MovesBetween(const ModelShape& shape, const MaskPlan& before, const MaskPlan& after,
                                    bool sharded);

// What workers have not sent of gradients that they drop goes to the owner of the unit when they hold it no
// more: whole slices, by block, slice, sender. Precondition as above.
std::vector<StateMove> ResidualMovesBetween(const MaskPlan& before, const MaskPlan& after);

// The change of masks on each worker, block by block: a block's new states are made beside its old ones,
// filled from them and from other workers one kind (parameters, each moment) after the other, then the old
// ones go. What is sent and received passes through memory for the block that has most of it, which is there
// from the beginning to the end. No gradients and no activations exist meanwhile. Backward masking with
// stored weights: parameters are there already. A residual, of residual_bytes an element, has moved before:
// the new one is made beside the old one, and what is sent passes through memory in the same way.
struct MovePrediction {
  int64_t peak = 0;  // bytes of counted tensors
  int64_t sent = 0;  // bytes
};
std::vector<MovePrediction> PredictMoves(const ModelShape& shape, const MaskPlan& before,
                                         const MaskPlan& after, const StepShape& step,
                                         int residual_bytes = 0);

struct ResamplingPrediction {
  std::vector<MovePrediction> workers;  // the largest of the run
  double mean_sent = 0;                 // bytes, of all workers in one change
  double moved_share = 0;               // of the maskable elements that a worker holds, those new to it; mean
};
// Over all changes of a run whose masks are `masks` (MasksOfRun) and come in a ring.
ResamplingPrediction PredictResampling(const ModelShape& shape, absl::Span<const MaskPlan> masks,
                                       const StepShape& step, int residual_bytes = 0);

}  // namespace tessera::plan

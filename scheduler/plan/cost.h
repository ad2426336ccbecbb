// Memory and traffic of a worker under a mask plan, before it starts.
// Exact arithmetic for states and buffers; activations from the measured
// ActivationProfile of the shape, scaled by tokens per micro-step.
//
// With E the elements a worker holds, e = bytes_per_element, s = optimizer_slots:
//   parameters eE, gradients eE, optimizer seE (one flat tensor per held unit and kind)
//   states     parameters and optimizer; gradients are there from their backward to the update, with
//              several micro-steps in the forward passes between, too
//   buffers    tokens and targets, 16 bytes a token
//   init       states + one parameter, as it is read from a file
//   forward    states + base_saved + what the blocks so far saved + the block's or the head's transient
//   backward   the same from the head and the last block to the first, with the gradients that have come. The
//              transients are measured with gradients that are copied away in hooks and freed at once
//   reduce, update: states + gradients (in place; the fused optimizer has no temporaries)
//   evaluate   states + base_saved + one block running without a graph, + its weights if not held here
//   checkpoint states (written in place) + the largest unit not held here, as an export streams it
//
// Units of one block with the same k holders are a set (unit_sets.h) of E_g elements; per set
//   sharded            states ceil(E_g / k); beside them what moving_blocks.h says comes and goes: weights of
//                      the block that runs and of the next one, and whole gradients while they are reduced
//   backward masking   stored: parameters e E_g also where the set is not held. Streamed: of blocks that are
//                      not wholly held as above; what is held of them is there twice
//   checkpointed       a held block keeps its output, the next one's input; the running one has what it would
//                      have saved beside it, in backward with the gradient that comes in. Measured as such
// An absent block saves what its shortcut does. Of a block held in part, the activations of absent chunks do
// not exist with forward masking; with backward masking all do, and a block that is wholly absent saves what
// input gradients need.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/mask_plan.h"
#include "scheduler/plan/model_shape.h"

namespace tessera::plan {

struct StepShape {
  int64_t batch = 1;            // samples per worker and micro-step
  int64_t sequence_length = 1;  // tokens per sample
  int64_t bytes_per_element = 4;
  int64_t gradient_wire_bytes = 4;  // of an element
  int accumulation = 1;             // micro-steps per step; with several, gradients stay between their passes
  int optimizer_slots = 2;          // states per element; AdamW 2
  bool sharded = false;             // FSDP: each unit's states divided among its holders
  bool checkpointed = false;  // activation checkpointing of every checkpoint_every-th block, from the first
  int checkpoint_every = 1;
  bool backward_masking = false;  // every worker runs every block
  bool streamed = false;          // backward masking: absent weights come and go; sharded ones do anyway
  std::vector<int64_t> batches;   // by worker instead of `batch`; empty: all alike

  bool Checkpoints(int block) const { return checkpointed && block % checkpoint_every == 0; }
  int64_t BatchOf(int worker) const { return batches.empty() ? batch : batches[worker]; }
};

struct PhasePeak {
  std::string name;  // init, forward, backward, reduce, update, evaluate, checkpoint
  int64_t bytes = 0;
};

struct MemoryPrediction {  // bytes of counted tensors
  int64_t parameters = 0;
  int64_t gradients = 0;  // when all are there: each from its backward to the update
  int64_t optimizer = 0;
  int64_t buffers = 0;      // token batches, token counts
  int64_t activations = 0;  // saved for backward at their largest; 0 when not measured
  int64_t transient = 0;    // peak above states, buffers and activations
  std::vector<PhasePeak> phases;
  int64_t peak = 0;  // the largest phase
};

// Precondition: `plan` was made from `shape`.
MemoryPrediction PredictMemory(const ModelShape& shape, const MaskPlan& plan, int worker,
                               const StepShape& step);

// Bytes of a worker's gradients: those outside the blocks, and of each block.
struct GradientBytes {
  int64_t base = 0;
  std::vector<int64_t> blocks;

  int64_t all() const { return std::accumulate(blocks.begin(), blocks.end(), base); }
};

// The same where gradients are of other sizes than what is trained.
MemoryPrediction PredictMemory(const ModelShape& shape, const MaskPlan& plan, int worker,
                               const StepShape& step, const GradientBytes& gradients);

// Bytes of a worker's process beside a peak of counted tensors, as shape.process has been measured; 0 when it
// has not.
int64_t PredictProcess(const ModelShape& shape, const MaskPlan& plan, int worker, const StepShape& step,
                       int64_t peak);

// Bytes a worker sends in one step, for a set of E elements with k holders of N workers, w bytes of weight
// and g of gradient an element, and a micro-steps:
//   held            2(k-1)/k gE, a ring all-reduce
//   held, sharded   a(k-1) ceil(E/k) (2w + g): gathered before forward and before backward, scattered after
//                   it; what is outside the blocks is gathered once: w + g
//   backward masking, k < N   (N-1)/N wE by every worker, as the owner sends what it updated; streamed 2a
//                   times that, before forward and before backward
// The small records that begin and end a step are not counted.
int64_t PredictTraffic(const MaskPlan& plan, int worker, const StepShape& step);
int64_t PredictTraffic(const MaskPlan& plan, int worker, int64_t bytes_per_element);

// Forward and backward of one step on one thread as fast as the one it was measured on; 0: not measured. An
// absent block under backward masking spares its weight gradients, half of its backward pass; a checkpointed
// one runs forward twice.
// Communication and the optimizer come on top.
double PredictComputeSeconds(const ModelShape& shape, const MaskPlan& plan, int worker,
                             const StepShape& step);

// A way of training the model with as many workers.
struct Regime {
  std::string name;
  double coverage = 1;
  Granularity granularity = Granularity::kBlock;
  bool sharded = false;       // FSDP: each unit's states divided among its holders
  bool checkpointed = false;  // activation checkpointing: a block keeps its input and runs again in backward
};

struct Alternative {
  std::string name;
  int64_t memory = 0;   // bytes, largest worker
  int64_t traffic = 0;  // bytes sent per worker and step, most of any
};

// InvalidArgument and others as MakeMaskPlan. With `request`'s workers, holders, gap, ends and seed; what
// PredictMemory and PredictTraffic say with the step's flags set as the regime asks.
absl::StatusOr<Alternative> PredictRegime(const ModelShape& shape, const MaskRequest& request,
                                          const StepShape& step, const Regime& regime);

// The same job done otherwise, for comparison: ddp, fsdp, fsdp+ac, b-sdp, n-sdp, b-sdp+fsdp+ac, the last
// three at the request's coverage. What can't be planned is left out.
std::vector<Alternative> Alternatives(const ModelShape& shape, const MaskRequest& request,
                                      const StepShape& step);

// What each maskable unit adds to a holder's peak, and what every worker needs beside them: PredictMemory's
// figures taken apart, so that their sum is at least its peak for most sets of units. As MakeMaskPlan.
absl::StatusOr<UnitCosts> PeakCosts(const ModelShape& shape, const MaskRequest& request,
                                    const StepShape& step);

// Bytes of counted tensors that a worker may need at its peak, by worker; 0 = unknown.
using MemoryLimits = std::vector<int64_t>;

// The request for which a scheme can weigh memory: with PeakCosts and `limits` as usable bytes if it has
// capacities, else unchanged. With step.batches the costs are taken apart by samples.
absl::StatusOr<MaskRequest> WithinLimits(const ModelShape& shape, MaskRequest request, const StepShape& step,
                                         const MemoryLimits& limits);

// Largest coverage at which the planner finds a plan whose every worker stays within its limit at its peak;
// 0 if none. Whole holder counts first, then single units between two of them. With many unlike workers by
// bisection.
double NearestCoverage(const ModelShape& shape, MaskRequest request, const StepShape& step,
                       const MemoryLimits& limits);

// Whether every worker stays within its limit at its peak; false also when there is no such plan.
bool FitsEverywhere(const ModelShape& shape, const MaskRequest& request, const StepShape& step,
                    const MemoryLimits& limits);

// Changes that make a job fit that does not, each alone and as small as it can be; 0 or false: it does not
// help.
struct NearestChanges {
  double coverage = 0;
  int64_t batch = 0;
  int64_t sequence_length = 0;
  bool checkpointed = false;
  bool sharded = false;
  int workers = 0;  // more of them, with as many holders of each unit
};
NearestChanges FindNearestChanges(const ModelShape& shape, const MaskRequest& request, const StepShape& step,
                                  const MemoryLimits& limits);

}  // namespace tessera::plan

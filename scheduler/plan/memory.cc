#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "scheduler/plan/cost.h"
#include "scheduler/plan/moving_blocks.h"
#include "scheduler/plan/unit_sets.h"

namespace tessera::plan {
namespace {

constexpr int64_t kBytesPerToken = 16;  // token and target, int64 each

int64_t LargestHeldParameter(const ModelShape& shape, const MaskPlan& plan, int worker) {
  int64_t largest = 0;
  for (const Slice& slice : plan.slices()) {
    if (plan.Holds(worker, slice.unit))
      largest = std::max(largest, shape.parameters[slice.parameter].elements());
  }
  return largest;
}

// The measured profile at the step's own number of tokens.
class Activations {
 public:
  Activations(const ModelShape& shape, const StepShape& step, int worker) : shape_(shape), step_(step) {
    const ActivationProfile& profile = shape.activations;
    const double measured = static_cast<double>(profile.batch) * static_cast<double>(profile.sequence_length);
    if (measured > 0) {
      scale_ =
          static_cast<double>(step.BatchOf(worker)) * static_cast<double>(step.sequence_length) / measured;
    }
  }

  // Of a block whose axes are held to the shares given, with gradients of its weights or without.
  PassBytes Of(int block, const std::map<Axis, double>& shares, bool frozen) const {
    const BlockActivation* whole = Kind(block);
    if (whole == nullptr) return {};
    const bool checkpointed = step_.Checkpoints(block);
    if (frozen && Measured(checkpointed ? whole->frozen_checkpointed : whole->frozen))
      return Scaled(checkpointed ? whole->frozen_checkpointed : whole->frozen);
    const bool measured = checkpointed && Measured(whole->checkpointed);
    PassBytes bytes = measured ? whole->checkpointed
                               : PassBytes{whole->saved, whole->forward_transient, whole->backward_transient};
    double saved = 0, forward = 0, backward = 0;  // that go with what is absent
    for (const AxisActivation& part : whole->axes) {
      const auto share = shares.find(part.axis);
      if (share == shares.end()) continue;
      const double absent = 1 - share->second;
      const PassBytes of = measured ? part.checkpointed
                                    : PassBytes{part.saved, part.forward_transient, part.backward_transient};
      saved += absent * static_cast<double>(of.saved);
      forward += absent * static_cast<double>(of.forward_transient);
      backward += absent * static_cast<double>(of.backward_transient);
    }
    bytes.saved -= std::llround(saved);
    bytes.forward_transient -= std::llround(forward);
    bytes.backward_transient -= std::llround(backward);
    return Scaled(checkpointed && !measured ? Checkpointed(*whole, bytes) : bytes);
  }
  PassBytes Shortcut(int block) const {
    const BlockActivation* whole = Kind(block);
    return whole == nullptr ? PassBytes{} : Scaled(whole->shortcut);
  }
  // Without a graph a block keeps at most what it would have saved, and only until it returns.
  int64_t WithoutGraph(int block) const {
    const BlockActivation* whole = Kind(block);
    if (whole == nullptr) return 0;
    if (Measured(whole->checkpointed))
      return Scaled(whole->checkpointed.saved + whole->checkpointed.forward_transient);
    return Scaled(whole->saved + whole->forward_transient);
  }
  int64_t base_saved() const { return Scaled(shape_.activations.base_saved); }
  int64_t head_transient() const { return Scaled(shape_.activations.head_transient); }
  int64_t end_peak() const { return Scaled(shape_.activations.end_peak); }

 private:
  static bool Measured(const PassBytes& bytes) { return bytes.saved > 0; }
  // Where it was not measured: the output stays, which is the next one's input; while the block runs, and
  // runs again, it has the rest as well.
  PassBytes Checkpointed(const BlockActivation& whole, const PassBytes& plain) const {
    const int64_t output =
        whole.output > 0 ? whole.output : std::min(whole.saved, shape_.activations.base_saved);
    const int64_t rest = plain.saved - output;
    return {output, rest + plain.forward_transient,
            rest + std::max(plain.forward_transient, plain.backward_transient)};
  }
  const BlockActivation* Kind(int block) const {
    const auto& kinds = shape_.activations.kinds;
    const int kind = shape_.blocks[block].kind;
    return kind < 0 || kind >= static_cast<int>(kinds.size()) ? nullptr : &kinds[kind];
  }
  int64_t Scaled(int64_t bytes) const { return std::llround(static_cast<double>(bytes) * scale_); }
  PassBytes Scaled(const PassBytes& bytes) const {
    return {Scaled(bytes.saved), Scaled(bytes.forward_transient), Scaled(bytes.backward_transient)};
  }

  const ModelShape& shape_;
  const StepShape& step_;
  double scale_ = 1;
};

// What a worker holds of a block.
struct BlockShare {
  int64_t held = 0;             // elements
  int64_t absent = 0;           // elements
  std::map<Axis, double> axes;  // shares of their chunks, 0-1; those with an absent one
};

std::vector<BlockShare> BlockShares(const ModelShape& shape, const MaskPlan& plan, int worker) {
  std::vector<BlockShare> shares(shape.blocks.size());
  std::map<std::pair<int, Axis>, std::pair<double, double>> chunks_of;  // held, all
  for (size_t u = 0; u < plan.units().size(); ++u) {
    const Unit& unit = plan.units()[u];
    if (unit.block == kNoBlock) continue;
    BlockShare& share = shares[unit.block];
    const bool held = plan.Holds(worker, static_cast<int>(u));
    (held ? share.held : share.absent) += unit.elements;
    if (unit.axis == Axis::kNone) continue;
    auto& [chunks_held, chunks] = chunks_of[{unit.block, unit.axis}];
    chunks_held += held ? 1 : 0;
    ++chunks;
  }
  for (const auto& [where, count] : chunks_of) {
    if (count.first < count.second) shares[where.first].axes[where.second] = count.first / count.second;
  }
  return shares;
}

struct StateElements {
  int64_t parameters = 0;
  int64_t trained = 0;  // with gradient and moments
};

StateElements CountStates(const std::vector<UnitSet>& sets, int worker, const StepShape& step) {
  StateElements count;
  const bool stored = step.backward_masking && !step.streamed && !step.sharded;
  for (const UnitSet& set : sets) {
    if (set.Holds(worker)) {
      count.parameters += set.Kept(step.sharded);
      count.trained += set.Kept(step.sharded);
    } else if (stored) {
      count.parameters += set.elements;
    }
  }
  return count;
}

GradientBytes CountGradients(const ModelShape& shape, const std::vector<UnitSet>& sets, int worker,
                             const StepShape& step) {
  GradientBytes bytes;
  bytes.blocks.resize(shape.blocks.size(), 0);
  for (const UnitSet& set : sets) {
    if (!set.Holds(worker)) continue;
    const int64_t kept = step.bytes_per_element * set.Kept(step.sharded);
    (set.block == kNoBlock ? bytes.base : bytes.blocks[static_cast<size_t>(set.block)]) += kept;
  }
  return bytes;
}

struct PassPeaks {  // bytes above states and batches
  int64_t saved = 0;
  int64_t forward = 0;
  int64_t backward = 0;
  int64_t evaluate = 0;
};

// Flat gradients are counted from their block's backward on, though its working memory may be at its largest
// before they come; shards from that of the block before. The base's come, unless sharded, once the head is
// done: the fresh gradient of its weight is in what is measured as saved. Those of an earlier micro-step are
// there all the time.
PassPeaks WalkBlocks(const ModelShape& shape, const MaskPlan& plan, const MovingBlocks& moving, int worker,
                     const StepShape& step, const GradientBytes& gradients) {
  const bool accumulated = step.accumulation > 1;
  const int64_t base_gradient = accumulated ? gradients.all() : step.sharded ? 0 : gradients.base;
  int64_t to_come = 0;  // of this block and those before it: its own is there, unless sharded
  const Activations activations(shape, step, worker);
  PassPeaks peaks;
  const int64_t base = activations.base_saved();
  int64_t saved = base;
  peaks.evaluate = base;
  const std::vector<BlockShare> shares = BlockShares(shape, plan, worker);
  for (size_t b = 0; b < shape.blocks.size(); ++b) {
    const int block = static_cast<int>(b);
    const bool runs = shares[b].held > 0 || step.backward_masking;
    peaks.evaluate = std::max({peaks.evaluate, base + moving.Assemble(block),
                               base + moving.Evaluate(block) + activations.WithoutGraph(block)});
    const PassBytes bytes = !runs                   ? activations.Shortcut(block)
                            : step.backward_masking ? activations.Of(block, {}, shares[b].held == 0)
                                                    : activations.Of(block, shares[b].axes, false);
    saved += bytes.saved;
    peaks.forward =
        std::max(peaks.forward, (runs ? moving.Forward(block) : 0) + saved + bytes.forward_transient +
                                    (accumulated ? gradients.all() : 0));
    // Backward of this block runs while everything before it is still saved.
    if (step.sharded) to_come += gradients.blocks[b];
    const int64_t there =
        accumulated ? gradients.all() : gradients.all() - gradients.base - to_come + base_gradient;
    peaks.backward = std::max(peaks.backward,
                              (runs ? moving.Backward(block) : 0) + saved + bytes.backward_transient + there);
    if (!step.sharded) to_come += gradients.blocks[b];
  }
  peaks.saved = saved;
  // The head's figure spans the loss and the start of backward, its weight's gradient included.
  const int64_t loss = activations.head_transient() + (accumulated ? gradients.all() : 0);
  const int64_t head = moving.Head() + saved + std::max(loss, base_gradient);
  peaks.forward = std::max(peaks.forward, head);
  peaks.backward = std::max({peaks.backward, head, moving.Head() + activations.end_peak() + gradients.all()});
  return peaks;
}

}  // namespace

MemoryPrediction PredictMemory(const ModelShape& shape, const MaskPlan& plan, int worker,
                               const StepShape& step) {
  return PredictMemory(shape, plan, worker, step, CountGradients(shape, UnitSets(plan), worker, step));
}

MemoryPrediction PredictMemory(const ModelShape& shape, const MaskPlan& plan, int worker,
                               const StepShape& step, const GradientBytes& gradients) {
  int64_t largest_absent = 0;
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    if (!plan.Holds(worker, u)) largest_absent = std::max(largest_absent, plan.units()[u].elements);
  }

  const int64_t e = step.bytes_per_element;
  const std::vector<UnitSet> sets = UnitSets(plan);
  const StateElements elements = CountStates(sets, worker, step);
  const MovingBlocks moving(shape, sets, plan.workers(), worker, step);
  MemoryPrediction memory;
  memory.parameters = e * elements.parameters;
  memory.gradients = gradients.all();
  memory.optimizer = step.optimizer_slots * e * elements.trained;
  const int64_t batches = kBytesPerToken * step.BatchOf(worker) * step.sequence_length;
  memory.buffers = batches + moving.Largest();
  const int64_t states = memory.parameters + memory.optimizer;
  const PassPeaks peaks = WalkBlocks(shape, plan, moving, worker, step, gradients);
  memory.activations = peaks.saved;
  memory.phases = {{"init", states + e * LargestHeldParameter(shape, plan, worker)},
                   {"forward", states + batches + peaks.forward},
                   {"backward", states + batches + peaks.backward},
                   {"reduce", states + memory.gradients + batches + moving.Reduce()},
                   {"update", states + memory.gradients + batches},
                   {"evaluate", states + batches + peaks.evaluate},
                   {"checkpoint", states + batches + e * largest_absent}};
  for (const PhasePeak& phase : memory.phases) memory.peak = std::max(memory.peak, phase.bytes);
  memory.transient =
      std::max<int64_t>(0, memory.peak - states - memory.gradients - memory.buffers - memory.activations);
  return memory;
}

}  // namespace tessera::plan

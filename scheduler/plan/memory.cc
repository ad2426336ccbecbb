#include <algorithm>
#include <cmath>

#include "scheduler/plan/cost.h"

namespace tessera::plan {
namespace {

constexpr int64_t kBytesPerToken = 16;  // token and target, int64 each
constexpr int64_t kCountBytes = 4;      // token count of a bucket, fp32

int64_t LargestParameter(const ModelShape& shape, const MaskPlan& plan, int worker, int unit) {
  int64_t largest = 0;
  for (size_t p = 0; p < shape.parameters.size(); ++p) {
    const int owner = plan.unit_of_parameter(static_cast<int>(p));
    if (owner != unit || !plan.Holds(worker, owner)) continue;
    largest = std::max(largest, shape.parameters[p].elements());
  }
  return largest;
}

// The measured profile at the step's own number of tokens.
class Activations {
 public:
  Activations(const ModelShape& shape, const StepShape& step) : shape_(shape) {
    const ActivationProfile& profile = shape.activations;
    const double measured = static_cast<double>(profile.batch) * static_cast<double>(profile.sequence_length);
    if (measured > 0) {
      scale_ = static_cast<double>(step.batch) * static_cast<double>(step.sequence_length) / measured;
    }
  }

  BlockActivation Of(int block) const {
    const auto& kinds = shape_.activations.kinds;
    const int kind = shape_.blocks[block].kind;
    if (kind < 0 || kind >= static_cast<int>(kinds.size())) return {};
    return {Scaled(kinds[kind].saved), Scaled(kinds[kind].forward_transient),
            Scaled(kinds[kind].backward_transient)};
  }
  int64_t base_saved() const { return Scaled(shape_.activations.base_saved); }
  int64_t head_transient() const { return Scaled(shape_.activations.head_transient); }

 private:
  int64_t Scaled(int64_t bytes) const { return std::llround(static_cast<double>(bytes) * scale_); }

  const ModelShape& shape_;
  double scale_ = 1;
};

struct PassPeaks {  // bytes above states and buffers
  int64_t saved = 0;
  int64_t forward = 0;
  int64_t backward = 0;
  int64_t evaluate = 0;
};

PassPeaks WalkBlocks(const ModelShape& shape, const MaskPlan& plan, int worker, const StepShape& step) {
  const Activations activations(shape, step);
  const auto gradient = [&](int unit) {
    return step.bytes_per_element * LargestParameter(shape, plan, worker, unit);
  };
  PassPeaks peaks;
  const int64_t base = activations.base_saved();
  int64_t saved = base;
  peaks.evaluate = base + activations.head_transient();
  for (size_t b = 0; b < shape.blocks.size(); ++b) {
    const int block = static_cast<int>(b);
    const BlockActivation activation = activations.Of(block);
    // An evaluation runs every block, also those that are streamed in.
    peaks.evaluate = std::max(peaks.evaluate, base + activation.forward_transient);
    if (!plan.Holds(worker, block + 1)) continue;
    saved += activation.saved;
    peaks.forward = std::max(peaks.forward, saved + activation.forward_transient);
    // Backward of this block runs while everything before it is still saved.
    peaks.backward = std::max(peaks.backward, saved + activation.backward_transient + gradient(block + 1));
  }
  peaks.saved = saved;
  peaks.forward = std::max(peaks.forward, saved + activations.head_transient());
  peaks.backward = std::max(peaks.backward, saved + gradient(0));
  return peaks;
}

}  // namespace

MemoryPrediction PredictMemory(const ModelShape& shape, const MaskPlan& plan, int worker,
                               const StepShape& step) {
  int64_t held_buckets = 0;
  int64_t largest_held = 0;
  int64_t largest_streamed = 0;
  int64_t largest_parameter = 0;
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    const int64_t elements = plan.units()[u].elements;
    if (!plan.Holds(worker, u)) {
      largest_streamed = std::max(largest_streamed, elements);
      continue;
    }
    ++held_buckets;
    largest_held = std::max(largest_held, elements);
    largest_parameter = std::max(largest_parameter, LargestParameter(shape, plan, worker, u));
  }

  const int64_t e = step.bytes_per_element;
  MemoryPrediction memory;
  memory.parameters = e * plan.Elements(worker);
  memory.gradients = memory.parameters;
  memory.optimizer = step.optimizer_slots * memory.parameters;
  memory.buffers = kBytesPerToken * step.batch * step.sequence_length + kCountBytes * held_buckets;
  const int64_t states = memory.parameters + memory.gradients + memory.optimizer + memory.buffers;
  const PassPeaks peaks = WalkBlocks(shape, plan, worker, step);
  memory.activations = peaks.saved;
  memory.phases = {{"init", memory.parameters + e * largest_parameter},
                   {"forward", states + peaks.forward},
                   {"backward", states + peaks.backward},
                   {"reduce", states},
                   {"update", states},
                   {"evaluate", states + e * largest_streamed + peaks.evaluate},
                   {"checkpoint", states + e * largest_held}};
  for (const PhasePeak& phase : memory.phases) memory.peak = std::max(memory.peak, phase.bytes);
  memory.transient = std::max<int64_t>(0, memory.peak - states - memory.activations);
  return memory;
}

}  // namespace tessera::plan

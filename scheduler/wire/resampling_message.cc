#include "scheduler/wire/resampling_message.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "scheduler/wire/plan_wire.h"

namespace tessera::wire {

namespace {

// Of an element.
int ResidualBytes(const v1::DroppingPlan& dropping) {
  if (dropping.mode() != v1::DROPPING_MODE_ENFORCE) return 0;
  return dropping.residual() == v1::RESIDUAL_KEEP_FP32   ? 4
         : dropping.residual() == v1::RESIDUAL_KEEP_BF16 ? 2
                                                         : 0;
}

}  // namespace

absl::Status CheckResampling(const v1::TrainingJobSpec& spec, const plan::ModelShape& shape,
                             const plan::MaskPlan& first) {
  const int64_t every = spec.subnetwork().resample_every();
  if (every <= 0 || plan::CanResample(shape, first)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "spec.subnetwork.resampleEvery: ", every,
      "; units trade holders with units of the same size, and no two that different workers hold "
      "are alike; use spec.subnetwork.granularity: neuron, or 0"));
}

std::vector<plan::MaskPlan> MasksOf(const plan::ModelShape& shape, const plan::MaskPlan& first,
                                    const v1::Plan& plan) {
  return plan::MasksOfRun(shape, first,
                          {.every = plan.inputs().resample_every(), .seed = plan.inputs().seed()},
                          plan.total_steps());
}

void CoverAllMasks(const plan::ModelShape& shape, absl::Span<const plan::MaskPlan> masks,
                   const plan::StepShape& step, v1::Plan* plan) {
  for (v1::WorkerPlan& worker : *plan->mutable_workers()) {
    for (const plan::MaskPlan& mask : masks.subspan(1)) {
      const plan::MemoryPrediction memory = plan::PredictMemory(shape, mask, worker.rank(), step);
      if (memory.peak > worker.memory().peak()) *worker.mutable_memory() = ToMessage(memory);
    }
  }
}

void AddMoves(const plan::ModelShape& shape, absl::Span<const plan::MaskPlan> masks,
              const plan::StepShape& step, v1::Plan* plan) {
  const int64_t every = plan->inputs().resample_every();
  if (every <= 0) return;
  const plan::ResamplingPrediction prediction =
      plan::PredictResampling(shape, masks, step, ResidualBytes(plan->dropping()));
  for (v1::WorkerPlan& worker : *plan->mutable_workers()) {
    const plan::MovePrediction& most = prediction.workers[static_cast<size_t>(worker.rank())];
    worker.set_resample_bytes(most.sent);
    if (masks.size() < 2) continue;
    v1::MemoryBreakdown& memory = *worker.mutable_memory();
    v1::MemoryPhase& phase = *memory.add_phases();
    phase.set_name("resample");
    phase.set_peak_bytes(most.peak);
    memory.set_peak(std::max(memory.peak(), most.peak));
  }
  v1::ResamplingPlan& resampling = *plan->mutable_resampling();
  resampling.set_every(every);
  resampling.set_times(plan->total_steps() > 0 ? (plan->total_steps() - 1) / every : 0);
  resampling.set_bytes(std::llround(prediction.mean_sent));
  resampling.set_moved_share(prediction.moved_share);
}

}  // namespace tessera::wire

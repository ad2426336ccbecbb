#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "scheduler/plan/cost.h"
#include "scheduler/plan/holder_counts.h"

namespace tessera::plan {
namespace {

// Of a block's input and output. A block that is cut keeps its width.
int64_t BoundaryBytes(const ModelShape& shape, const StepShape& step) {
  int64_t hidden = 0;
  for (const Parameter& parameter : shape.parameters) {
    if (parameter.block != kNoBlock || parameter.dims.size() != 2 || parameter.dims[0] != shape.vocab_size)
      continue;
    hidden = parameter.dims[1];
    break;
  }
  if (hidden > 0) return step.bytes_per_element * step.batch * step.sequence_length * hidden;
  const ActivationProfile& profile = shape.activations;  // no embedding: what the first block is given
  const double measured = static_cast<double>(profile.batch) * static_cast<double>(profile.sequence_length);
  const double tokens = static_cast<double>(step.batch) * static_cast<double>(step.sequence_length);
  return measured > 0 ? std::llround(static_cast<double>(profile.base_saved) * tokens / measured) : 0;
}

struct HeldParts {              // elements of a worker
  int64_t kept = 0;             // of parameters, and as many of gradients and of each optimizer state
  int64_t base = 0;             // outside the blocks, whole
  std::vector<int64_t> blocks;  // whole, by block; 0: absent
};

HeldParts PartsOf(const ModelShape& shape, const MaskPlan& plan, int worker, bool sharded) {
  HeldParts parts{.blocks = std::vector<int64_t>(shape.blocks.size(), 0)};
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    if (!plan.Holds(worker, u)) continue;
    const Unit& unit = plan.units()[u];
    const int64_t holders = sharded ? static_cast<int64_t>(plan.Holders(u).size()) : 1;
    parts.kept += (unit.elements + holders - 1) / holders;
    (unit.block == kNoBlock ? parts.base : parts.blocks[unit.block]) += unit.elements;
  }
  return parts;
}

int64_t LargestPair(const std::vector<int64_t>& blocks) {  // of blocks that follow each other
  int64_t largest = 0;
  int64_t last = 0;
  for (int64_t elements : blocks) {
    if (elements == 0) continue;
    largest = std::max(largest, last + elements);
    last = elements;
  }
  return largest;
}

int64_t RegimePeak(const ModelShape& shape, const MaskPlan& plan, int worker, const StepShape& step,
                   const Regime& regime) {
  const MemoryPrediction whole = PredictMemory(shape, plan, worker, step);
  if (!regime.sharded && !regime.checkpointed) return whole.peak;
  const HeldParts parts = PartsOf(shape, plan, worker, regime.sharded);
  int64_t states = whole.buffers + (2 + step.optimizer_slots) * step.bytes_per_element * parts.kept;
  if (regime.sharded) states += 2 * step.bytes_per_element * (parts.base + LargestPair(parts.blocks));
  if (!regime.checkpointed) return states + whole.activations + whole.transient;

  const int64_t boundary = BoundaryBytes(shape, step);
  const int64_t held =
      std::count_if(parts.blocks.begin(), parts.blocks.end(), [](int64_t e) { return e > 0; });
  // What the running block would have saved, from what all of them save: blocks of one kind save alike.
  const int64_t base_saved = std::min(boundary, whole.activations);
  const int64_t running = held > 0 ? (whole.activations - base_saved) / held : 0;
  return states + base_saved + held * boundary + running + whole.transient;
}

int64_t ShardedTraffic(const MaskPlan& plan, int worker, int64_t bytes_per_element) {
  int64_t bytes = 0;
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    const auto holders = static_cast<int64_t>(plan.Holders(u).size());
    if (!plan.Holds(worker, u)) continue;
    const int64_t passes = plan.units()[u].block == kNoBlock ? 2 : 3;
    bytes += passes * (holders - 1) * plan.units()[u].elements * bytes_per_element / holders;
  }
  return bytes;
}

}  // namespace

absl::StatusOr<Alternative> PredictRegime(const ModelShape& shape, const MaskRequest& request,
                                          const StepShape& of_job, const Regime& regime) {
  // The job's own regime is not this one's.
  const StepShape step{.batch = of_job.batch,
                       .sequence_length = of_job.sequence_length,
                       .accumulation = of_job.accumulation,
                       .optimizer_slots = of_job.optimizer_slots,
                       .bytes_per_element = of_job.bytes_per_element};
  MaskRequest asked = request;
  asked.granularity = regime.granularity;
  asked.coverage = regime.coverage;
  if (regime.coverage >= 1) {
    asked.scheme = Scheme::kFull;
  } else if (asked.scheme == Scheme::kFull) {
    asked.scheme = Scheme::kCyclic;
  }
  asked.min_gap = 0;
  asked.capacities.clear();  // to be told what it would need, not whether it fits
  TESSERA_ASSIGN_OR_RETURN(const MaskPlan plan, MakeMaskPlan(shape, asked));
  Alternative result{.name = regime.name};
  for (int w = 0; w < plan.workers(); ++w) {
    result.memory = std::max(result.memory, RegimePeak(shape, plan, w, step, regime));
    result.traffic =
        std::max(result.traffic, regime.sharded ? ShardedTraffic(plan, w, step.bytes_per_element)
                                                : PredictTraffic(plan, w, step.bytes_per_element));
  }
  return result;
}

std::vector<Alternative> Alternatives(const ModelShape& shape, const MaskRequest& request,
                                      const StepShape& step) {
  const double c = request.coverage;
  const Regime regimes[] = {
      {.name = "ddp"},
      {.name = "fsdp", .sharded = true},
      {.name = "fsdp+ac", .sharded = true, .checkpointed = true},
      {.name = "b-sdp", .coverage = c},
      {.name = "n-sdp", .granularity = Granularity::kNeuron, .coverage = c},
      {.name = "b-sdp+fsdp+ac", .coverage = c, .sharded = true, .checkpointed = true},
  };
  std::vector<Alternative> alternatives;
  for (const Regime& regime : regimes) {
    absl::StatusOr<Alternative> predicted = PredictRegime(shape, request, step, regime);
    if (predicted.ok()) alternatives.push_back(*std::move(predicted));
  }
  return alternatives;
}

double NearestCoverage(const ModelShape& shape, MaskRequest request, const StepShape& step, int64_t limit) {
  const int workers = request.workers;
  if (request.scheme == Scheme::kFull) request.scheme = Scheme::kCyclic;
  const auto fits = [&](double coverage) {
    request.coverage = coverage;
    return FitsEverywhere(shape, request, step, limit);
  };
  int maskable = 0;
  const absl::StatusOr<MaskPlan> whole = MakeMaskPlan(
      shape,
      {.workers = 1, .scheme = Scheme::kFull, .coverage = 1, .ends_always_on = request.ends_always_on});
  if (!whole.ok()) return 0;
  for (const Unit& unit : whole->units()) maskable += unit.always_on ? 0 : 1;

  for (int holders = workers; holders >= std::max(1, request.min_holders); --holders) {
    if (!fits(static_cast<double>(holders) / workers)) continue;
    if (holders == workers) return 1;
    for (int extra = maskable - 1; extra > 0; --extra) {
      const double coverage = (holders + static_cast<double>(extra) / maskable) / workers;
      if (fits(coverage)) return coverage;
    }
    return static_cast<double>(holders) / workers;
  }
  return 0;
}

}  // namespace tessera::plan

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "scheduler/plan/bisection.h"
#include "scheduler/plan/cost.h"
#include "scheduler/plan/holder_counts.h"

namespace tessera::plan {
namespace {

// Coverages in steps of one holder of one mean unit, for workers that are unlike.
constexpr int64_t kMostScanned = 512;
constexpr int64_t kAbove = 4;

double LargestStep(int64_t low, int64_t high, absl::FunctionRef<bool(int64_t)> fits) {
  if (high - low <= kMostScanned) {
    while (high >= low && !fits(high)) --high;
    return high >= low ? static_cast<double>(high) : 0;
  }
  if (fits(high)) return static_cast<double>(high);
  if (!fits(low)) return 0;
  low = LargestFitting(low, high, fits);
  for (int64_t step = std::min(low + kAbove, high); step > low; --step) {
    if (fits(step)) return static_cast<double>(step);
  }
  return static_cast<double>(low);
}

}  // namespace

absl::StatusOr<Alternative> PredictRegime(const ModelShape& shape, const MaskRequest& request,
                                          const StepShape& of_job, const Regime& regime) {
  // The job's own regime is not this one's.
  const StepShape step{.batch = of_job.batch,
                       .sequence_length = of_job.sequence_length,
                       .bytes_per_element = of_job.bytes_per_element,
                       .gradient_wire_bytes = of_job.gradient_wire_bytes,
                       .accumulation = of_job.accumulation,
                       .optimizer_slots = of_job.optimizer_slots,
                       .sharded = regime.sharded,
                       .checkpointed = regime.checkpointed};
  MaskRequest asked = request;
  asked.granularity = regime.granularity;
  asked.coverage = regime.coverage;
  if (regime.coverage >= 1) {
    asked.scheme = Scheme::kFull;
  } else if (asked.scheme == Scheme::kFull) {
    asked.scheme = Scheme::kCyclic;
  }
  asked.min_gap = 0;
  if (asked.scheme == Scheme::kPlaced) asked.scheme = Scheme::kCyclic;
  asked.capacities.clear();  // to be told what it would need, not whether it fits
  asked.costs = {};
  TESSERA_ASSIGN_OR_RETURN(const MaskPlan plan, MakeMaskPlan(shape, asked));
  Alternative result{.name = regime.name};
  for (int w = 0; w < plan.workers(); ++w) {
    result.memory = std::max(result.memory, PredictMemory(shape, plan, w, step).peak);
    result.traffic = std::max(result.traffic, PredictTraffic(plan, w, step));
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
      {.name = "n-sdp", .coverage = c, .granularity = Granularity::kNeuron},
      {.name = "b-sdp+fsdp+ac", .coverage = c, .sharded = true, .checkpointed = true},
  };
  std::vector<Alternative> alternatives;
  for (const Regime& regime : regimes) {
    absl::StatusOr<Alternative> predicted = PredictRegime(shape, request, step, regime);
    if (predicted.ok()) alternatives.push_back(*std::move(predicted));
  }
  return alternatives;
}

double NearestCoverage(const ModelShape& shape, MaskRequest request, const StepShape& step,
                       const MemoryLimits& limits) {
  const int workers = request.workers;
  if (request.scheme == Scheme::kFull) {
    request.scheme = request.capacities.empty() ? Scheme::kCyclic : Scheme::kPlaced;
  }
  const auto fits = [&](double coverage) {
    request.coverage = coverage;
    return FitsEverywhere(shape, request, step, limits);
  };
  int maskable = 0;
  const absl::StatusOr<MaskPlan> whole = MakeMaskPlan(
      shape,
      {.workers = 1, .scheme = Scheme::kFull, .coverage = 1, .ends_always_on = request.ends_always_on});
  if (!whole.ok()) return 0;
  for (const Unit& unit : whole->units()) maskable += unit.always_on ? 0 : 1;
  if (request.scheme == Scheme::kPlaced) {
    const int64_t units = std::max(1, maskable);
    const double steps = static_cast<double>(units) * workers;
    const auto fits_step = [&](int64_t step_count) {
      return fits(std::min(1.0, static_cast<double>(step_count) / steps));
    };
    return LargestStep(std::max(1, request.min_holders) * units, units * workers, fits_step) / steps;
  }

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

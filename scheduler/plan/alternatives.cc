#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "scheduler/plan/cost.h"
#include "scheduler/plan/holder_counts.h"

namespace tessera::plan {
namespace {

bool FitsEverywhere(const ModelShape& shape, const MaskRequest& request, const StepShape& step,
                    int64_t limit) {
  const absl::StatusOr<MaskPlan> plan = MakeMaskPlan(shape, request);
  if (!plan.ok()) return false;
  for (int w = 0; w < request.workers; ++w) {
    if (PredictMemory(shape, *plan, w, step).peak > limit) return false;
  }
  return true;
}

}  // namespace

std::vector<Alternative> Alternatives(const ModelShape& shape, int workers, const StepShape& step) {
  const absl::StatusOr<MaskPlan> whole =
      MakeMaskPlan(shape, {.workers = workers, .scheme = Scheme::kFull, .coverage = 1});
  if (!whole.ok()) return {};
  const MemoryPrediction ddp = PredictMemory(shape, *whole, 0, step);
  int64_t largest_unit = 0;
  for (const Unit& unit : whole->units()) largest_unit = std::max(largest_unit, unit.elements);

  const int64_t n = workers;
  const int64_t parameters = ddp.parameters;
  const int64_t states = ddp.parameters + ddp.gradients + ddp.optimizer;
  Alternative fsdp{.name = "fsdp"};
  fsdp.memory = (states + n - 1) / n + 2 * step.bytes_per_element * largest_unit + ddp.buffers +
                ddp.activations + ddp.transient;
  fsdp.traffic = 3 * (n - 1) * parameters / n;
  return {{"ddp", ddp.peak, PredictTraffic(*whole, 0, step.bytes_per_element)}, std::move(fsdp)};
}

double NearestCoverage(const ModelShape& shape, MaskRequest request, const StepShape& step, int64_t limit) {
  const int workers = request.workers;
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

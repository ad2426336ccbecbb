#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "scheduler/plan/cost.h"
#include "scheduler/plan/holder_counts.h"
#include "scheduler/plan/units.h"

namespace tessera::plan {
namespace {

// Worker 0 holds all units but one; as many workers as the coverage asks for hold each.
class Example {
 public:
  Example(const UnitTable& table, const MaskRequest& request)
      : table_(table),
        workers_(request.workers),
        holders_(std::clamp(static_cast<int>(MeanHolders(request.coverage, request.workers)), 1,
                            request.workers)) {}

  enum class Held : uint8_t { kAll, kAllButOne, kAlwaysOn };
  MaskPlan Plan(Held held, int but = -1) const {
    std::vector<std::vector<int>> holders;
    for (int u = 0; u < static_cast<int>(table_.units.size()); ++u) {
      const bool always = table_.units[u].always_on;
      const bool absent = !always && (held == Held::kAlwaysOn || u == but) && workers_ > 1;
      const int count = always ? workers_ : std::min(holders_, workers_ - (absent ? 1 : 0));
      std::vector<int>& mine = holders.emplace_back();
      for (int i = 0; i < count; ++i) mine.push_back(i + (absent ? 1 : 0));
    }
    return {workers_, table_.units, std::move(holders), table_.slices};
  }

 private:
  const UnitTable& table_;
  const int workers_;
  const int holders_;
};

}  // namespace

absl::StatusOr<UnitCosts> PeakCosts(const ModelShape& shape, const MaskRequest& request,
                                    const StepShape& step) {
  TESSERA_ASSIGN_OR_RETURN(const UnitTable table,
                           MakeUnits(shape, request.granularity, request.ends_always_on, request.workers));
  const Example example(table, request);
  const auto peak = [&](const MaskPlan& plan) { return PredictMemory(shape, plan, 0, step).peak; };
  const int64_t all = peak(example.Plan(Example::Held::kAll));
  UnitCosts costs;
  int64_t sum = 0;
  std::map<std::tuple<int, Axis, int64_t>, int64_t> known;  // units that are alike
  for (int u = 0; u < static_cast<int>(table.units.size()); ++u) {
    const Unit& unit = table.units[u];
    if (unit.always_on) continue;
    const int kind = unit.block == kNoBlock ? -1 : shape.blocks[unit.block].kind;
    const auto [it, fresh] = known.emplace(std::tuple(kind, unit.axis, unit.elements), 0);
    if (fresh) it->second = std::max<int64_t>(0, all - peak(example.Plan(Example::Held::kAllButOne, u)));
    costs.units.push_back(it->second);
    sum += it->second;
  }
  costs.always_on = std::max(all - sum, peak(example.Plan(Example::Held::kAlwaysOn)));
  return costs;
}

namespace {

// A peak grows with the samples by a line or, where another phase takes over, faster: the line through it at
// the step's batch and at twice that.
absl::StatusOr<UnitCosts> CostsBySample(const ModelShape& shape, const MaskRequest& request, StepShape step) {
  const int64_t batch = step.batch;
  step.batches.clear();
  TESSERA_ASSIGN_OR_RETURN(UnitCosts costs, PeakCosts(shape, request, step));
  step.batch = 2 * batch;
  TESSERA_ASSIGN_OR_RETURN(const UnitCosts doubled, PeakCosts(shape, request, step));
  const auto split = [batch](int64_t once, int64_t twice, int64_t& fixed, int64_t& per_sample) {
    per_sample = std::clamp<int64_t>((twice - once + batch - 1) / batch, 0, once / batch);
    fixed = once - batch * per_sample;
  };
  split(costs.always_on, doubled.always_on, costs.always_on, costs.always_on_per_sample);
  costs.units_per_sample.resize(costs.units.size());
  for (size_t u = 0; u < costs.units.size(); ++u) {
    split(costs.units[u], doubled.units[u], costs.units[u], costs.units_per_sample[u]);
  }
  return costs;
}

}  // namespace

absl::StatusOr<MaskRequest> WithinLimits(const ModelShape& shape, MaskRequest request, const StepShape& step,
                                         const MemoryLimits& limits) {
  if (request.capacities.empty() || request.workers < 1) return request;
  TESSERA_ASSIGN_OR_RETURN(request.costs, step.batches.empty() ? PeakCosts(shape, request, step)
                                                               : CostsBySample(shape, request, step));
  for (size_t w = 0; w < std::min(request.capacities.size(), limits.size()); ++w) {
    request.capacities[w].usable_bytes = limits[w];
  }
  return request;
}

}  // namespace tessera::plan

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

absl::StatusOr<MaskRequest> WithinLimits(const ModelShape& shape, MaskRequest request, const StepShape& step,
                                         const MemoryLimits& limits) {
  if (request.capacities.empty() || request.workers < 1) return request;
  TESSERA_ASSIGN_OR_RETURN(request.costs, PeakCosts(shape, request, step));
  for (size_t w = 0; w < std::min(request.capacities.size(), limits.size()); ++w) {
    request.capacities[w].usable_bytes = limits[w];
  }
  return request;
}

}  // namespace tessera::plan

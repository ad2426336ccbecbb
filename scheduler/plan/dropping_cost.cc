#include "scheduler/plan/dropping_cost.h"

#include <algorithm>
#include <map>
#include <utility>

#include "scheduler/plan/layer_budgets.h"
#include "scheduler/plan/unit_sets.h"

namespace tessera::plan {
namespace {

constexpr int64_t kFloat = 4;
constexpr int64_t kChunkElements = 64;  // of a sketch, with kSketchNumbers each
constexpr int64_t kSketchNumbers = 4;

// By unit: its group.
std::vector<int> GroupsOf(const MaskPlan& plan) {
  std::map<std::pair<int, std::vector<int>>, int> numbers;
  std::vector<int> groups;
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    const auto holders = plan.Holders(u);
    groups.push_back(
        numbers
            .try_emplace({plan.units()[u].block, std::vector<int>(holders.begin(), holders.end())},
                         static_cast<int>(numbers.size()))
            .first->second);
  }
  return groups;
}

int64_t PickBytes(const KeptPart& part, int64_t holders, const Dropping& dropping) {
  if (part.kept == part.elements) return 0;
  if (dropping.picks == PickTraffic::kBitmap)
    return (holders - 1) * ((part.elements + 63) / 64 * 8) / holders;
  if (dropping.picks == PickTraffic::kSketch) {
    return 2 * (holders - 1) * (part.elements / kChunkElements * kSketchNumbers * kFloat) / holders;
  }
  return 0;
}

}  // namespace

std::vector<KeptPart> DivideBudgets(const ModelShape& shape, const MaskPlan& plan,
                                    const std::vector<int64_t>& kept) {
  const std::vector<int> groups = GroupsOf(plan);
  std::map<std::pair<int, int>, KeptPart> parts;  // by group and parameter
  for (const Slice& slice : plan.slices()) {
    KeptPart& part = parts[{groups[slice.unit], slice.parameter}];
    if (part.elements == 0) part.first_unit = slice.unit;
    part.group = groups[slice.unit];
    part.parameter = slice.parameter;
    part.elements += slice.elements;
  }
  std::vector<int64_t> before(shape.parameters.size(), 0);
  std::vector<KeptPart> divided;
  for (auto& [key, part] : parts) {
    int64_t& begin = before[part.parameter];
    part.kept = KeptOfPart(shape.parameters[part.parameter].elements(), kept[part.parameter], begin,
                           begin + part.elements);
    part.kept = std::max<int64_t>(part.kept, 1);
    begin += part.elements;
    divided.push_back(part);
  }
  return divided;
}

DroppedMemory PredictDroppedMemory(const ModelShape& shape, const MaskPlan& plan, int worker,
                                   const StepShape& step, const Dropping& dropping) {
  DroppedMemory result;
  int64_t kept = 0, held = 0, largest = 0, gathered = 0;
  for (const KeptPart& part : DivideBudgets(shape, plan, dropping.kept)) {
    if (!plan.Holds(worker, part.first_unit)) continue;
    kept += part.kept;
    held += part.elements;
    if (part.kept == part.elements) continue;
    largest = std::max(largest, part.elements);
    gathered = std::max(gathered, part.kept);
  }
  MemoryPrediction& memory = result.memory;
  memory = PredictMemory(shape, plan, worker, step);
  const int64_t dense = std::exchange(memory.gradients, kFloat * kept);
  result.residual = dropping.residual_bytes_per_element * held;
  memory.peak = 0;
  for (PhasePeak& phase : memory.phases) {
    phase.bytes -= dense;
    // Ring and residual are made when the weights are there.
    if (phase.name != "init") phase.bytes += memory.gradients + result.residual;
    if (phase.name == "update") {
      phase.bytes += dropping.freeze_unsent ? kFloat * (1 + step.optimizer_slots) * gathered
                                            : kFloat * std::min(kSpreadElements, largest);
    }
    memory.peak = std::max(memory.peak, phase.bytes);
  }
  const int64_t states =
      memory.parameters + memory.gradients + memory.optimizer + memory.buffers + result.residual;
  memory.transient = std::max<int64_t>(0, memory.peak - states - memory.activations);
  return result;
}

int64_t PredictDroppedTraffic(const ModelShape& shape, const MaskPlan& plan, int worker,
                              const StepShape& step, const Dropping& dropping) {
  int64_t bytes = PredictTraffic(plan, worker, step);
  const auto all_reduce = [&](int64_t elements, int64_t holders) {
    return 2 * (holders - 1) * elements * step.gradient_wire_bytes / holders;
  };
  for (const UnitSet& set : UnitSets(plan)) {
    if (set.Holds(worker)) bytes -= all_reduce(set.elements, static_cast<int64_t>(set.holders.size()));
  }
  for (const KeptPart& part : DivideBudgets(shape, plan, dropping.kept)) {
    const auto holders = static_cast<int64_t>(plan.Holders(part.first_unit).size());
    if (holders < 2 || !plan.Holds(worker, part.first_unit)) continue;
    bytes += all_reduce(part.kept, holders) + PickBytes(part, holders, dropping) / dropping.refresh;
  }
  return bytes;
}

}  // namespace tessera::plan

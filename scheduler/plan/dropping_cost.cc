#include "scheduler/plan/dropping_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
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
  const int64_t bitmap = (part.elements + 63) / 64 * 8;
  switch (dropping.picks) {
    case PickTraffic::kBitmap:
      return (holders - 1) * bitmap / holders;
    case PickTraffic::kMoments:
      return 2 * (holders - 1) * bitmap / holders;
    case PickTraffic::kSketch:
      return 2 * (holders - 1) * (part.elements / kChunkElements * kSketchNumbers * kFloat) / holders;
    case PickTraffic::kNone:
    case PickTraffic::kPairs:  // in the values' traffic
      break;
  }
  return 0;
}

// Bytes that a holder sends of `kept` elements, of which each holder contributes its share.
double SharedBytes(double kept, absl::Span<const int> holders, int worker, double wire,
                   const std::vector<double>& shares) {
  std::vector<double> steps;
  for (int rank : holders) steps.push_back(shares[rank]);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  double bytes = 0, before = 0;
  for (const double step : steps) {
    const double segment = wire * kept * (step - std::exchange(before, step)) / steps.back();
    double contributors = 0;
    int root = -1;
    for (int rank : holders) {
      if (shares[rank] < step) continue;
      ++contributors;
      if (root < 0 || shares[rank] > shares[root]) root = rank;
    }
    if (shares[worker] >= step) bytes += 2 * (contributors - 1) / contributors * segment;
    const double others = static_cast<double>(holders.size()) - contributors;
    if (others > 0 && (shares[worker] < step || worker == root)) bytes += others / (others + 1) * segment;
  }
  return bytes;
}

// Whether holders pick of the part each for themselves.
bool IsListed(const KeptPart& part, const Dropping& dropping) {
  return dropping.picks == PickTraffic::kPairs && part.kept < part.elements;
}

// What one worker has of a group.
struct HeldGroup {
  int block = kNoBlock;
  int64_t holders = 1;
  int own = 0;                    // section
  std::vector<int64_t> sections;  // elements of the ring
  int64_t listed = 0;             // kept elements that go with their indices
  int64_t largest() const { return *std::max_element(sections.begin(), sections.end()); }
};

std::map<int, HeldGroup> HeldGroups(const MaskPlan& plan, int worker, const std::vector<KeptPart>& parts,
                                    const Dropping& dropping) {
  std::map<int, HeldGroup> groups;
  for (const KeptPart& part : parts) {
    if (!plan.Holds(worker, part.first_unit)) continue;
    HeldGroup& group = groups[part.group];
    const auto holders = plan.Holders(part.first_unit);
    group.block = plan.units()[part.first_unit].block;
    group.holders = static_cast<int64_t>(holders.size());
    group.own = static_cast<int>(std::find(holders.begin(), holders.end(), worker) - holders.begin());
    group.sections.resize(std::max<size_t>(group.sections.size(), static_cast<size_t>(part.section) + 1), 0);
    group.sections[part.section] += part.room;
    if (IsListed(part, dropping)) group.listed += part.kept;
  }
  return groups;
}

}  // namespace

std::vector<KeptPart> DivideBudgets(const ModelShape& shape, const MaskPlan& plan, const Dropping& dropping,
                                    bool sharded) {
  const std::vector<int> groups = GroupsOf(plan);
  // In a group's flat tensor parameters under weight decay come first.
  std::map<std::tuple<int, bool, int>, KeptPart> parts;  // by group, no decay, parameter
  std::map<int, int64_t> sizes;                          // of groups
  for (const Slice& slice : plan.slices()) {
    const int group = groups[slice.unit];
    KeptPart& part = parts[{group, !shape.parameters[slice.parameter].decay, slice.parameter}];
    if (part.elements == 0) part.first_unit = slice.unit;
    part.group = group;
    part.parameter = slice.parameter;
    part.elements += slice.elements;
    sizes[group] += slice.elements;
  }
  std::vector<int64_t> before(shape.parameters.size(), 0);
  std::map<int, int64_t> offsets;  // in the groups' flat tensors
  std::vector<KeptPart> divided;
  for (const auto& [key, whole] : parts) {
    const auto holders = plan.Holders(whole.first_unit);
    double share = dropping.worker_shares.empty() ? 1 : 0;
    for (size_t h = 0; h < holders.size() && !dropping.worker_shares.empty(); ++h) {
      share = std::max(share, dropping.worker_shares[holders[h]]);
    }
    const int64_t sections = sharded ? static_cast<int64_t>(holders.size()) : 1;
    const int64_t shard = (sizes[whole.group] + sections - 1) / sections;
    const int64_t offset = std::exchange(offsets[whole.group], offsets[whole.group] + whole.elements);
    for (int64_t section = 0; section < sections; ++section) {
      const int64_t low = std::max(offset, section * shard),
                    high = std::min(offset + whole.elements, (section + 1) * shard);
      if (low >= high) continue;
      KeptPart part = whole;
      part.section = static_cast<int>(section);
      part.elements = high - low;
      const int64_t begin = before[part.parameter] + low - offset;
      part.kept = KeptOfPiece(shape.parameters[part.parameter].elements(), dropping.kept[part.parameter],
                              begin, begin + part.elements, share);
      part.room = IsListed(part, dropping)
                      ? std::min(part.elements, static_cast<int64_t>(holders.size()) * part.kept)
                      : part.kept;
      divided.push_back(part);
    }
    before[whole.parameter] += whole.elements;
  }
  return divided;
}

DroppedMemory PredictDroppedMemory(const ModelShape& shape, const MaskPlan& plan, int worker,
                                   const StepShape& step, const Dropping& dropping) {
  DroppedMemory result;
  const std::vector<KeptPart> parts = DivideBudgets(shape, plan, dropping, step.sharded);
  int64_t held = 0, largest = 0, gathered = 0;
  const std::map<int, HeldGroup> groups = HeldGroups(plan, worker, parts, dropping);
  for (const KeptPart& part : parts) {
    if (!plan.Holds(worker, part.first_unit)) continue;
    held += part.elements;
    if (part.kept == part.elements || (step.sharded && part.section != groups.at(part.group).own)) continue;
    largest = std::max(largest, part.elements);
    gathered = std::max(gathered, part.room);
  }
  GradientBytes ring;
  ring.blocks.resize(shape.blocks.size(), 0);
  int64_t exchanged = 0;
  for (const auto& [number, group] : groups) {
    (group.block == kNoBlock ? ring.base : ring.blocks[static_cast<size_t>(group.block)]) +=
        kFloat * group.largest();
    if (group.holders == 1) continue;
    exchanged = std::max(exchanged, (group.holders + 1) * group.listed * (kFloat + step.gradient_wire_bytes));
  }
  MemoryPrediction& memory = result.memory;
  memory = PredictMemory(shape, plan, worker, step, ring);
  result.residual = dropping.residual_bytes_per_element * held;
  memory.peak = 0;
  for (PhasePeak& phase : memory.phases) {
    // It is made when the weights are there.
    if (phase.name != "init") phase.bytes += result.residual;
    if (phase.name == "backward" || phase.name == "reduce") phase.bytes += exchanged;
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
  const int64_t wire = step.gradient_wire_bytes;
  const auto all_reduce = [&](int64_t elements, int64_t holders) {
    return 2 * (holders - 1) * elements * wire / holders;
  };
  const auto scatter = [&](int64_t section, int64_t holders) {
    return step.accumulation * (holders - 1) * section * wire;
  };
  for (const UnitSet& set : UnitSets(plan)) {
    const auto holders = static_cast<int64_t>(set.holders.size());
    if (!set.Holds(worker)) continue;
    bytes -= step.sharded ? scatter(set.Kept(true), holders) : all_reduce(set.elements, holders);
  }
  const std::vector<KeptPart> parts = DivideBudgets(shape, plan, dropping, step.sharded);
  for (const KeptPart& part : parts) {
    const auto holders = plan.Holders(part.first_unit);
    const auto count = static_cast<int64_t>(holders.size());
    if (count < 2 || !plan.Holds(worker, part.first_unit)) continue;
    bytes += PickBytes(part, count, dropping) / dropping.refresh;
    if (step.sharded) continue;
    if (IsListed(part, dropping)) {
      bytes += (count - 1) * part.kept * (kFloat + wire);
      continue;
    }
    bytes += dropping.worker_shares.empty()
                 ? all_reduce(part.kept, count)
                 : std::llround(SharedBytes(static_cast<double>(part.kept), holders, worker,
                                            static_cast<double>(wire), dropping.worker_shares));
  }
  if (!step.sharded) return bytes;
  for (const auto& [number, group] : HeldGroups(plan, worker, parts, dropping)) {
    bytes += scatter(group.largest(), group.holders);
  }
  return bytes;
}

}  // namespace tessera::plan

#include "scheduler/plan/unit_sets.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::plan {

bool UnitSet::Holds(int worker) const { return std::binary_search(holders.begin(), holders.end(), worker); }

int64_t UnitSet::Kept(bool sharded) const {
  const int64_t k = sharded ? static_cast<int64_t>(holders.size()) : 1;
  return (elements + k - 1) / k;
}

std::vector<UnitSet> UnitSets(const MaskPlan& plan) {
  std::vector<UnitSet> sets;
  std::map<std::pair<int, std::vector<int>>, size_t> known;
  for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
    const Unit& unit = plan.units()[u];
    std::vector<int> holders(plan.Holders(u).begin(), plan.Holders(u).end());
    const auto [it, fresh] = known.emplace(std::pair(unit.block, holders), sets.size());
    if (fresh) sets.push_back({unit.block, std::move(holders), 0});
    sets[it->second].elements += unit.elements;
  }
  return sets;
}

}  // namespace tessera::plan

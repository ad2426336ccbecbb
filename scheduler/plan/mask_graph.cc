#include "scheduler/plan/mask_graph.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>

#include "scheduler/plan/masking_error.h"
#include "scheduler/plan/symmetric_eigenvalues.h"

namespace tessera::plan {
namespace {

// Maskable units with one holder set, of which there are `count`.
struct UnitGroup {
  const std::vector<int>* holders = nullptr;
  double count = 0;
};

std::vector<UnitGroup> GroupByHolders(const std::vector<std::vector<int>>& holders,
                                      absl::Span<const int> counts) {
  std::vector<UnitGroup> groups;
  std::map<std::vector<int>, size_t> known;
  for (size_t u = 0; u < holders.size(); ++u) {
    const auto [at, fresh] = known.emplace(holders[u], groups.size());
    if (fresh) groups.push_back({&holders[u], 0});
    groups[at->second].count += counts.empty() ? 1 : counts[u];
  }
  return groups;
}

// The walk from worker to worker by way of a common unit.
std::vector<double> WorkerGram(const std::vector<UnitGroup>& groups, const std::vector<double>& held) {
  const size_t n = held.size();
  std::vector<double> gram(n * n, 0.0);
  for (const UnitGroup& group : groups) {
    for (int a : *group.holders) {
      for (int b : *group.holders) {
        gram[a * n + b] +=
            group.count / (static_cast<double>(group.holders->size()) * std::sqrt(held[a] * held[b]));
      }
    }
  }
  return gram;
}

// The same from group to group by way of a common holder: the same eigenvalues but for zeros.
std::vector<double> GroupGram(const std::vector<UnitGroup>& groups, const std::vector<double>& held) {
  const size_t n = groups.size();
  std::vector<std::vector<int>> groups_of(held.size());
  for (size_t g = 0; g < n; ++g) {
    for (int w : *groups[g].holders) groups_of[w].push_back(static_cast<int>(g));
  }
  std::vector<double> scale;
  for (const UnitGroup& group : groups) {
    scale.push_back(std::sqrt(group.count / static_cast<double>(group.holders->size())));
  }
  std::vector<double> gram(n * n, 0.0);
  for (size_t w = 0; w < held.size(); ++w) {
    for (int a : groups_of[w]) {
      for (int b : groups_of[w]) gram[a * n + b] += scale[a] * scale[b] / held[w];
    }
  }
  return gram;
}

}  // namespace

double SpectralGap(int workers, const std::vector<std::vector<int>>& holders, absl::Span<const int> counts) {
  if (holders.empty() || workers == 1) return 1;
  const std::vector<UnitGroup> groups = GroupByHolders(holders, counts);
  std::vector<double> held(workers, 0.0);
  for (const UnitGroup& group : groups) {
    for (int w : *group.holders) held[w] += group.count;
  }
  for (double units : held) {
    if (units == 0) return 0;
  }
  const int n = std::min(workers, static_cast<int>(groups.size()));
  if (n == 1) return 1;
  const bool by_worker = workers <= static_cast<int>(groups.size());
  const double gap = 1 - SecondEigenvalue(by_worker ? WorkerGram(groups, held) : GroupGram(groups, held), n);
  return gap < 1e-12 ? 0 : std::min(gap, 1.0);
}

MaskGraph AnalyseMaskGraph(const MaskPlan& plan) {
  std::vector<std::vector<int>> holders;
  double elements = 0;
  double variance = 0;
  double bias = 0;
  for (size_t u = 0; u < plan.units().size(); ++u) {
    const Unit& unit = plan.units()[u];
    if (unit.always_on) continue;
    const absl::Span<const int> ranks = plan.Holders(static_cast<int>(u));
    holders.emplace_back(ranks.begin(), ranks.end());
    const double size = static_cast<double>(unit.elements);
    const int count = static_cast<int>(ranks.size());
    elements += size;
    variance += size * VarianceFactor(plan.workers(), count);
    bias += size * SquaredBiasFactor(plan.workers(), count);
  }
  MaskGraph graph;
  graph.gap = SpectralGap(plan.workers(), holders);
  if (elements > 0) {
    graph.variance_factor = variance / elements;
    graph.bias_factor = bias / elements;
  }
  return graph;
}

}  // namespace tessera::plan

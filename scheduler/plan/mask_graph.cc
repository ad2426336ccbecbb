#include "scheduler/plan/mask_graph.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "scheduler/plan/masking_error.h"
#include "scheduler/plan/symmetric_eigenvalues.h"

namespace tessera::plan {
namespace {

// Rows of an incidence matrix: for each, the columns that are set.
using Lists = std::vector<std::vector<int>>;

// D_c^-1/2 B^T D_r^-1 B D_c^-1/2 for the incidence `rows` x columns.
std::vector<double> NormalisedGram(const Lists& rows, const std::vector<double>& column_degrees) {
  const size_t n = column_degrees.size();
  std::vector<double> gram(n * n, 0.0);
  for (const std::vector<int>& row : rows) {
    for (int a : row) {
      for (int b : row) {
        gram[a * n + b] +=
            1.0 / (static_cast<double>(row.size()) * std::sqrt(column_degrees[a] * column_degrees[b]));
      }
    }
  }
  return gram;
}

std::vector<double> Degrees(const Lists& lists) {
  std::vector<double> degrees;
  for (const std::vector<int>& list : lists) degrees.push_back(static_cast<double>(list.size()));
  return degrees;
}

}  // namespace

double SpectralGap(int workers, const std::vector<std::vector<int>>& holders) {
  if (holders.empty() || workers == 1) return 1;
  Lists held(workers);
  for (size_t u = 0; u < holders.size(); ++u) {
    for (int w : holders[u]) held[w].push_back(static_cast<int>(u));
  }
  for (const std::vector<int>& units : held) {
    if (units.empty()) return 0;
  }
  // A A^T and A^T A share their non-zero eigenvalues: take the smaller.
  const int units = static_cast<int>(holders.size());
  const int n = std::min(workers, units);
  if (n == 1) return 1;
  const std::vector<double> gram =
      workers <= units ? NormalisedGram(holders, Degrees(held)) : NormalisedGram(held, Degrees(holders));
  const double gap = 1 - SymmetricEigenvalues(gram, n)[1];
  return gap < 1e-12 ? 0 : std::min(gap, 1.0);
}

MaskGraph AnalyseMaskGraph(const MaskPlan& plan) {
  Lists holders;
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

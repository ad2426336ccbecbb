#include "scheduler/plan/holder_counts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::plan {

double MeanHolders(double coverage, int workers) {
  const double mean = coverage * workers;
  const double whole = std::round(mean);
  return std::abs(mean - whole) < 1e-9 * workers ? whole : mean;
}

std::vector<int> HolderCounts(double coverage, int workers, absl::Span<const int64_t> elements) {
  const double mean = MeanHolders(coverage, workers);
  const int low = static_cast<int>(std::floor(mean));
  std::vector<int> counts(elements.size(), low);
  if (mean == low) return counts;

  std::vector<int> order(elements.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return elements[a] > elements[b]; });
  double owed = 0;  // elements asked for so far above floor(h) each, less those given
  for (int unit : order) {
    const double size = static_cast<double>(std::max<int64_t>(elements[unit], 1));
    owed += (mean - low) * size;
    if (owed >= size / 2) {
      counts[unit] = low + 1;
      owed -= size;
    }
  }
  return counts;
}

}  // namespace tessera::plan

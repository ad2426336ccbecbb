#include "scheduler/plan/load_shares.h"

#include <algorithm>
#include <cstddef>

#include "scheduler/plan/bisection.h"

namespace tessera::plan {
namespace {

double Load(const LoadQuestion& q, size_t worker, double time) {
  const double most = std::max(0.0, std::min(q.all_maskable, q.limits[worker]));
  return std::clamp(q.speeds[worker] * time - q.always_on, 0.0, most);
}

double Sum(const LoadQuestion& q, double time) {
  double sum = 0;
  for (size_t w = 0; w < q.speeds.size(); ++w) sum += Load(q, w, time);
  return sum;
}

}  // namespace

std::vector<double> LoadShares(const LoadQuestion& q) {
  // Handed-out load grows with the time everybody may take: bisect the time.
  const double high = (q.always_on + q.all_maskable) / *std::min_element(q.speeds.begin(), q.speeds.end());
  const Edge edge = Bisect(0, high, [&](double time) { return Sum(q, time) >= q.total; });
  std::vector<double> shares(q.speeds.size(), 0.0);
  for (size_t w = 0; w < shares.size(); ++w) shares[w] = q.total > 0 ? Load(q, w, edge.from) / q.total : 0;
  return shares;
}

}  // namespace tessera::plan

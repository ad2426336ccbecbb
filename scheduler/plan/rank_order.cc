#include "scheduler/plan/rank_order.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace tessera::plan {
namespace {

constexpr int kMostSweeps = 8;

class Distances {
 public:
  Distances(int workers, const std::vector<double>& seconds) : n_(workers), seconds_(seconds) {
    for (double s : seconds) longest_ = std::max(longest_, s);
  }
  double operator()(int a, int b) const {
    const double there = Known(a, b);
    const double back = Known(b, a);
    if (there == 0 && back == 0) return longest_;
    if (there == 0 || back == 0) return there + back;
    return (there + back) / 2;
  }

 private:
  double Known(int a, int b) const { return seconds_[static_cast<size_t>(a) * n_ + b]; }

  const int n_;
  const std::vector<double>& seconds_;
  double longest_ = 0;
};

std::vector<int> NearestNeighbours(int workers, const Distances& distance) {
  std::vector<int> tour{0};
  std::vector<char> visited(workers, 0);
  visited[0] = 1;
  while (static_cast<int>(tour.size()) < workers) {
    int nearest = -1;
    for (int w = 0; w < workers; ++w) {
      if (visited[w]) continue;
      if (nearest < 0 || distance(tour.back(), w) < distance(tour.back(), nearest)) nearest = w;
    }
    visited[nearest] = 1;
    tour.push_back(nearest);
  }
  return tour;
}

// Reverses pieces while that shortens the closed tour.
void TwoOpt(std::vector<int>& tour, const Distances& distance) {
  const int n = static_cast<int>(tour.size());
  bool improved = true;
  for (int sweep = 0; improved && sweep < kMostSweeps; ++sweep) {
    improved = false;
    for (int i = 0; i + 2 < n; ++i) {
      for (int j = i + 2; j < n; ++j) {
        const int next = tour[(j + 1) % n];
        if (next == tour[i]) continue;
        const double now = distance(tour[i], tour[i + 1]) + distance(tour[j], next);
        const double then = distance(tour[i], tour[j]) + distance(tour[i + 1], next);
        if (then >= now * (1 - 1e-12)) continue;
        std::reverse(tour.begin() + i + 1, tour.begin() + j + 1);
        improved = true;
      }
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<int>> OrderByRoundTrip(int workers, const std::vector<double>& seconds) {
  if (workers < 1 || seconds.size() != static_cast<size_t>(workers) * static_cast<size_t>(workers)) {
    return absl::InvalidArgumentError(absl::StrCat("round-trip times: ", seconds.size(), " entries for ",
                                                   workers, " workers; must be their square"));
  }
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (std::isfinite(seconds[i]) && seconds[i] >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("round-trip time from worker ", i / workers, " to ",
                                                   i % workers, ": ", seconds[i],
                                                   "; must be 0 (unknown) or more and finite"));
  }
  const Distances distance(workers, seconds);
  std::vector<int> tour = NearestNeighbours(workers, distance);
  TwoOpt(tour, distance);
  return tour;
}

double TourSeconds(const std::vector<int>& tour, const std::vector<double>& seconds) {
  const Distances distance(static_cast<int>(tour.size()), seconds);
  double sum = 0;
  for (size_t i = 0; i < tour.size(); ++i) sum += distance(tour[i], tour[(i + 1) % tour.size()]);
  return tour.size() > 1 ? sum : 0;
}

}  // namespace tessera::plan

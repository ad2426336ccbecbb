#include "tests/scheduler/plan/placement_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "scheduler/plan/holder_counts.h"
#include "scheduler/plan/mask_graph.h"

namespace tessera::plan {

int64_t UsableBytes(const PlacementRequest& request, int worker) {
  int64_t bytes = request.workers[worker].memory_bytes;
  for (const PlacementWorker& other : request.workers) {
    if (request.workers[worker].memory_bytes > 0 || other.memory_bytes == 0) continue;
    if (bytes == 0 || other.memory_bytes < bytes) bytes = other.memory_bytes;  // unknown: the least known
  }
  if (bytes == 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::floor(static_cast<double>(bytes) * (1 - request.safety_margin)));
}

int64_t NeededBytes(const PlacementRequest& request, const Holders& holders, int worker, int64_t samples) {
  int64_t bytes = request.always_on.bytes + samples * request.always_on.bytes_per_sample;
  for (size_t u = 0; u < holders.size(); ++u) {
    if (!std::binary_search(holders[u].begin(), holders[u].end(), worker)) continue;
    bytes += request.units[u].bytes + samples * request.units[u].bytes_per_sample;
  }
  return bytes;
}

std::vector<int> Counts(const PlacementRequest& request) {
  std::vector<int64_t> elements;
  for (const PlacementUnit& unit : request.units) elements.push_back(unit.elements);
  return HolderCounts(request.coverage, static_cast<int>(request.workers.size()), elements);
}

void ExpectConstraintsHold(const PlacementRequest& request, const Placement& placement) {
  const int workers = static_cast<int>(request.workers.size());
  PlacementRequest placed = request;
  placed.coverage = placement.coverage;
  const std::vector<int> counts = Counts(placed);
  for (size_t u = 0; u < placement.holders.size(); ++u) {
    const std::vector<int>& holders = placement.holders[u];
    ASSERT_EQ(static_cast<int>(holders.size()), counts[u]);
    ASSERT_GE(static_cast<int>(holders.size()), request.min_holders);
    ASSERT_TRUE(std::is_sorted(holders.begin(), holders.end()));
    ASSERT_EQ(std::set<int>(holders.begin(), holders.end()).size(), holders.size());
    ASSERT_TRUE(holders.front() >= 0 && holders.back() < workers);
  }
  for (int w = 0; w < workers; ++w) {
    ASSERT_LE(NeededBytes(request, placement.holders, w, placement.samples[w]), UsableBytes(request, w))
        << "worker " << w;
  }
  ASSERT_GE(placement.gap, request.min_gap - 1e-9);
  ASSERT_NEAR(placement.gap, SpectralGap(workers, placement.holders), 1e-9);
  const std::set<std::vector<int>> sets(placement.holders.begin(), placement.holders.end());
  if (request.max_holder_sets > 0) ASSERT_LE(static_cast<int>(sets.size()), request.max_holder_sets);
  const std::vector<double> seconds = SecondsPerStep(placed, placement.holders, placement.samples);
  for (int w = 0; w < workers; ++w) ASSERT_NEAR(seconds[w], placement.seconds[w], 1e-6 * seconds[w] + 1e-9);
}

}  // namespace tessera::plan

// Ranks in the order of their distances: a ring all-reduce passes data between neighbours.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace tessera::plan {

// A tour through all workers, near ones next to each other: nearest neighbour first, then 2-opt moves
// while they shorten it (bounded). `seconds` is workers x workers, row-major, round-trip times; 0 off the
// diagonal = unknown, taken as the longest known. The way there and back count alike: the mean is taken.
// Starts at worker 0. InvalidArgument for another size, or times that are negative or not finite.
absl::StatusOr<std::vector<int>> OrderByRoundTrip(int workers, const std::vector<double>& seconds);

// Of the closed tour.
double TourSeconds(const std::vector<int>& tour, const std::vector<double>& seconds);

}  // namespace tessera::plan

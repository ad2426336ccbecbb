// How many workers hold each maskable unit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::plan {

// Holders per unit so that a worker holds `coverage` of all elements on average.
// With h = coverage * workers whole, every unit has h holders. Otherwise units have
// floor(h) or floor(h) + 1: units are taken from the largest to the smallest (equal
// ones in order), each rounded to the side that brings the sum so far closest to
// coverage. Mean coverage then differs from the one asked for by at most half of the largest unit's
// share divided by `workers`.
// Precondition: 1 <= coverage * workers <= workers.
std::vector<int> HolderCounts(double coverage, int workers, absl::Span<const int64_t> elements);

// coverage * workers, with a last bit of rounding removed: 0.7 * 10 is 7.
double MeanHolders(double coverage, int workers);

}  // namespace tessera::plan

// Deals units to workers one after the other, each to those who lack most.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/plan/mask_scheme.h"

namespace tessera::plan {

// Units go out in `order`, a permutation of them. Unit u weighs weights[u] and goes to the
// input.holders[u] workers with the largest (share of the total weight - weight so far);
// workers it would carry over their limit come last. Ties are broken by (seed, draw).
// Once as many distinct holder sets exist as workers, a set in use is taken again
// whenever the balance is no worse for it: each set costs a communicator.
Assignment Deal(const SchemeInput& input, absl::Span<const int> order, absl::Span<const double> weights,
                uint64_t draw);

// Whether a draw is good enough to stop: it reaches min_gap, and it is connected if a plan
// with these holder counts can be at all.
bool MixesWell(const SchemeInput& input, double gap);

}  // namespace tessera::plan

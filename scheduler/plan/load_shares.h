// How the work of the maskable units is divided among workers.
#pragma once

#include <vector>

#include "absl/types/span.h"

namespace tessera::plan {

struct LoadQuestion {
  double total = 0;            // load to hand out, over all holders of all maskable units
  double always_on = 0;        // load that every worker carries anyway
  double all_maskable = 0;     // what one worker carries that holds every maskable unit
  std::vector<double> speeds;  // one per worker, > 0
  std::vector<double> limits;  // most maskable load per worker; same unit as total
};

// Shares of `total`, one per worker, that let the slowest worker finish as early as
// can be: (always_on + share * total) / speed is the same for all workers except those
// at zero, at all_maskable, or at their limit. The shares sum to 1 unless the limits
// leave less room than `total`.
std::vector<double> LoadShares(const LoadQuestion& question);

}  // namespace tessera::plan

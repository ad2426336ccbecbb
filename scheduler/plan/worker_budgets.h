// How many gradient elements each worker contributes to a step, so that nobody waits for the worker with
// the slow link and nobody needs memory that it does not have in one piece.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::plan {

struct WorkerLink {
  double rtt_seconds = 0;
  double bytes_per_second = 0;  // 0 = unknown, taken as the fastest known
  // The largest block of memory that may be had for the kept elements: free memory cut by its
  // fragmentation. -1 = unknown, taken as enough.
  int64_t usable_bytes = -1;
  double floor = 0, ceiling = 1;  // of its share, as somebody has set them; they count before all else
};

struct WorkerBudgetRequest {
  int64_t elements = 0;  // of a worker's whole gradient
  double density = 1;    // mean share that the workers contribute, (0, 1]
  double floor = 0;      // least share of each worker, at most `density`
  int levels = 4;        // most distinct budgets: each costs a segment of every reduction
  double wire_bytes_per_element = 4;
  int64_t memory_bytes_per_element = 4;
  std::vector<WorkerLink> workers;
};

struct WorkerBudgets {
  std::vector<int64_t> kept;  // by worker
  double seconds = 0;         // T: when the last worker has sent; 0 when no link is known
};

// The least T for which the budgets sum to workers * density * elements, where worker i contributes
//   min((T - rtt_i) * bandwidth_i, usable_i), at least the floor and at most everything;
// workers of one level contribute what the weakest of them can. The sum is met to within less than one
// element per worker. Equal workers get equal budgets; of two workers, the one with the slower link, the
// longer round trip and less usable memory never gets more. Whoever is at a floor or ceiling of its own has
// just that, and the others share the rest. A pure function.
//
// InvalidArgument: density or floor out of range, floors and ceilings that cannot sum to the density.
// ResourceExhausted: a worker whose memory does not hold the floor, or workers whose memory does not hold the
// density; names the worker or the density that would fit.
absl::StatusOr<WorkerBudgets> DivideAmongWorkers(const WorkerBudgetRequest& request);

}  // namespace tessera::plan

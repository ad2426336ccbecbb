// Which worker holds which unit when workers differ in memory, speed and links.
//
// A step takes as long as its slowest worker. Worker w with n samples that holds the set S needs
//   n * (always-on + SUM over S of flops) / flops_per_second
//   + (always-on + SUM over S of 2(k-1)/k * sync_bytes) / bytes_per_second,   k holders of the unit,
// and memory of always-on.bytes + n * always-on.bytes_per_sample + the same summed over S. Communication is
// counted in full, as if nothing of it were hidden behind compute. The placement minimises the time of the
// slowest worker such that every worker fits. A worker with a slow link gets fewer units: what it sends
// and what it receives both shrink with them.
//
// Pure and deterministic: equal requests give equal placements on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::plan {

struct PlacementUnit {
  int64_t elements = 0;
  int64_t bytes = 0;             // that it adds to a holder's peak: model states
  int64_t bytes_per_sample = 0;  // the same, for each sample of a micro-step: activations
  double flops_per_sample = 0;   // forward and backward
  int64_t sync_bytes = 0;        // of its gradient
};

struct PlacementWorker {
  int64_t memory_bytes = 0;     // 0 = unknown: planned for as the smallest that is known
  double flops_per_second = 0;  // 0 = unknown: as the slowest that is known
  double bytes_per_second = 0;  // of its link, either direction; 0 = unknown: as the slowest that is known
};

inline constexpr int kMostPlacedWorkers = 4096;
inline constexpr int kMostPlacedUnits = 65536;

struct PlacementRequest {
  PlacementUnit always_on;           // held by everybody, transient peaks included
  std::vector<PlacementUnit> units;  // maskable
  std::vector<PlacementWorker> workers;
  double coverage = 1;          // mean over workers of the held share of the maskable elements, (0, 1]
  bool coverage_auto = false;   // instead: the largest that fits
  double safety_margin = 0.05;  // share of a worker's memory that stays free, [0, 1)
  int min_holders = 1;
  double min_gap = 0;  // of the mask graph
  // Each distinct holder set costs a communicator, and two threads or half a gigabyte with it. Beyond this
  // many units several share one set. 0 = one for each unit.
  int max_holder_sets = 64;
  int64_t samples = 1;              // per worker and micro-step
  std::vector<int64_t> samples_of;  // by worker instead, on average `samples`; empty: all alike
  bool balance_samples = false;     // divide workers * samples among the workers by what they can do
  // Workers from near to near, as OrderByRoundTrip gives them; empty: in their own order. Near ones share
  // holder sets where the gap allows it.
  std::vector<int> tour;
  uint64_t seed = 1;
  bool remedies = true;  // look for the nearest changes when it is infeasible
};

struct Placement {
  double coverage = 1;                    // the one placed
  std::vector<std::vector<int>> holders;  // by unit, ascending
  std::vector<int64_t> samples;           // by worker
  std::vector<double> seconds;            // of a step, by worker; all 0 when no speed and no link is known
  double step_seconds = 0;                // the largest of them
  double gap = 1;
  int holder_sets = 0;  // distinct, of two workers and more
};

enum class Constraint : uint8_t {
  kAlwaysOn,     // a worker can't hold even the part that everybody holds
  kUnit,         // a unit fits on fewer workers than must hold it
  kTotalMemory,  // all workers together have less room than the coverage asks for
  kPacking,      // there is room in sum, but not in whole units
  kMinGap,
};

// Why there is no placement. `proven`: there is none at all; otherwise none was found by a bounded search.
struct Infeasibility {
  Constraint constraint = Constraint::kTotalMemory;
  bool proven = true;
  int worker = -1;            // that binds, if one does
  int unit = -1;              // likewise
  int64_t missing_bytes = 0;  // of memory
  std::string message;        // with numbers
  // Nearest changes that make it feasible, one at a time; 0: changing that alone does not help.
  double nearest_coverage = 0;
  int64_t nearest_samples = 0;
  int nearest_workers = 0;  // in all, the further ones like the best of those given
};

struct PlacementAnswer {
  std::optional<Placement> placement;  // exactly one of the two
  std::optional<Infeasibility> infeasibility;
};

// InvalidArgument names the field that makes no sense, with its value and what would be right.
absl::StatusOr<PlacementAnswer> Place(const PlacementRequest& request);

// What the workers would need per step with these holders: by worker. Precondition: `holders` and `samples`
// have the request's sizes. For comparisons.
std::vector<double> SecondsPerStep(const PlacementRequest& request,
                                   const std::vector<std::vector<int>>& holders,
                                   const std::vector<int64_t>& samples);

// The workers to use when not all must be: indices, ascending, at least `least`. Leaves out those that
// can't hold the always-on part and then the slowest while that raises samples per second.
std::vector<int> ChooseWorkers(const PlacementRequest& request, int least);

}  // namespace tessera::plan

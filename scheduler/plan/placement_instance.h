// A placement problem in plain numbers, as its parts solve it. Internal to placement*.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/placement.h"

namespace tessera::plan {

// "Bundles" are groups of units that share a holder set; when sets are not scarce, each is one unit.
struct PlacementInstance {
  int workers = 0;
  // By bundle.
  std::vector<std::vector<int>> members;  // units
  std::vector<int> holders;               // how many
  std::vector<int64_t> bytes, bytes_per_sample;
  std::vector<double> flops, traffic;  // per sample; bytes a holder sends
  std::vector<double> length;          // share of all maskable bytes
  // By worker.
  std::vector<int64_t> room;  // for bundles: memory less margin and always-on part; may be negative
  std::vector<int64_t> samples;
  std::vector<double> fixed_seconds, seconds_per_flop, seconds_per_byte;
  std::vector<int> tour;
  double min_gap = 0;
  uint64_t seed = 1;

  int bundles() const { return static_cast<int>(holders.size()); }
  double Seconds(int worker, int bundle) const {
    return flops[bundle] * seconds_per_flop[worker] + traffic[bundle] * seconds_per_byte[worker];
  }
  int64_t Bytes(int worker, int bundle) const {
    return bytes[bundle] + samples[worker] * bytes_per_sample[bundle];
  }
};

// What holds what, with the sums that follow from it.
class Holding {
 public:
  explicit Holding(const PlacementInstance& instance);

  bool Has(int worker, int bundle) const { return holds_[Index(worker, bundle)] != 0; }
  void Put(int worker, int bundle, bool hold);
  double seconds(int worker) const { return seconds_[worker]; }
  int64_t free(int worker) const { return free_[worker]; }  // negative: overfull
  int64_t Overflow() const;
  double Slowest() const;
  double Gap() const;  // of the mask graph, each member of a bundle being a unit
  int HolderSets() const;
  std::vector<std::vector<int>> Holders() const;  // by bundle
  const PlacementInstance& instance() const { return *instance_; }

 private:
  size_t Index(int worker, int bundle) const {
    return static_cast<size_t>(worker) * instance_->bundles() + bundle;
  }

  const PlacementInstance* instance_;
  std::vector<char> holds_;  // [worker][bundle]
  std::vector<double> seconds_;
  std::vector<int64_t> free_;
};

// placement_ring.cc. The time at which everybody would finish if bundles could be cut anywhere, and each
// worker's share of all of them, 0-1, by then: a lower bound of what whole bundles can reach when memory
// and time per byte are alike for all bundles.
struct FractionalPlacement {
  double seconds = 0;
  std::vector<double> shares;  // by worker
  bool fits = true;            // the workers' room suffices for all of it
};
FractionalPlacement PlaceFractions(const PlacementInstance& instance);

// Bundles lie on a ring that is gone round once for each holder; every worker takes the next piece, as
// long as its share. `shift` (0-1) of the ring is skipped after each round, and `shuffle` != 0 lays every
// round in an order of its own. The holder counts are met; room may be overdrawn.
Holding LayRing(const PlacementInstance& instance, const FractionalPlacement& target, double shift,
                uint64_t shuffle);
// Largest bundle first, each to the workers that would finish it earliest.
Holding LayGreedy(const PlacementInstance& instance);
// Bundle b on the workers b, b + 1, ... of the tour, as the cyclic scheme has it.
Holding LayCyclic(const PlacementInstance& instance);

// placement_search.cc. Moves and swaps that first bring every worker within its room and then speed up the
// slowest; at most `trials` of them are looked at.
void Improve(Holding& holding, int64_t trials);
// Swaps that raise the gap to min_gap and keep every worker within its room and `most_seconds`.
void Mix(Holding& holding, double most_seconds, int64_t trials);

// Tries every placement that fits, has the gap and beats `best_seconds`. Complete: the answer is exact;
// otherwise `most_nodes` were not enough.
struct ExactSearch {
  bool complete = false;
  std::optional<Holding> best;  // none: nothing better than best_seconds exists (if complete)
};
ExactSearch SearchExactly(const PlacementInstance& instance, double best_seconds, int64_t most_nodes);

}  // namespace tessera::plan

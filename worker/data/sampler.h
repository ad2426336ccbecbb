// In which order ranks read the samples of a dataset.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "worker/data/dataset.h"

namespace tessera::worker {

// A permutation of the samples for each pass over the data, computed from
// (seed, position) alone: nothing to save for a resumed run.
class Sampler {
 public:
  static constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

  // end: positions from it on do not exist; micro-batches that reach it are shorter, or empty.
  Sampler(int64_t samples, uint64_t seed, int64_t end = kEndless);
  int64_t At(int64_t position) const;  // index of a sample; position >= 0, any number of passes

  // Samples of rank's micro-batch, when rank r takes shares[r] samples in each of them: disjoint between
  // ranks, and together the same for any shares and any accumulation of the same sum.
  std::vector<Sample> MicroBatch(int64_t step, int micro_step, int accumulation, int rank,
                                 std::span<const int64_t> shares) const;
  // No position is left for any step after this one.
  bool EndsWith(int64_t step, int accumulation, std::span<const int64_t> shares) const;

 private:
  int64_t samples_;
  uint64_t seed_;
  int64_t end_;
};

}  // namespace tessera::worker

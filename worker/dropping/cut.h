// Arithmetic on the selected elements of a tensor, in one pass over it.
//
// The kept elements of a tensor are consecutive in the ring, in ascending order of their indices.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "worker/dropping/selection.h"

namespace tessera::worker {

// What was not sent so far, on this rank; at most one of the pointers is set.
struct ResidualView {
  float* fp32 = nullptr;
  uint16_t* bf16 = nullptr;
  uint64_t seed = 0;  // of the stochastic rounding to bf16: another one for each rank, tensor and micro-step
};

// Moves the kept elements of a fresh gradient [elements] into `ring` [kept]: written if `first`, else added.
// With a residual the gradient is added to it first, and what is kept is taken out of it: the ring then gets
// residual + gradient, and the residual keeps the rest. Without one the rest is lost. gradient null: zeros.
void CutGradient(const Selection& selection, const float* gradient, bool first, const ResidualView& residual,
                 float* ring);

// Puts the kept elements [begin, end) of `ring` back: into the residual, if there is one.
void ReturnKept(const Selection& selection, int64_t begin, int64_t end, const float* ring,
                const ResidualView& residual);

// Spreads kept elements out again, part by part from the first element to the last.
class KeptReader {
 public:
  // Both outlive the reader; ring [selection.kept()].
  KeptReader(const Selection* selection, const float* ring) : selection_(selection), ring_(ring) {}

  // The next `count` elements: kept ones from the ring, zeros for the rest. count is a multiple of 64 or
  // reaches the last element. Returns how many are kept.
  int64_t Spread(int64_t count, float* out);

 private:
  const Selection* selection_;
  const float* ring_;
  int64_t position_ = 0;
};

// Kept elements of any tensor [elements] -> [kept], and back; the others stay.
void GatherKept(const Selection& selection, const float* from, float* to);
void ScatterKept(const Selection& selection, const float* from, float* to);

}  // namespace tessera::worker

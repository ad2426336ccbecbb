// The order in which the elements of a tensor take turns: element i stands at position (i * s) mod n,
// with s odd, near 0.618 n and coprime with n. Neighbours stand far apart, and walking through the elements
// gives their positions by one addition each, so there is no list of indices.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace tessera::worker {

class Rotation {
 public:
  static constexpr int64_t kMostElements = (int64_t{1} << 31) - 1;

  explicit Rotation(int64_t elements);  // 1 to kMostElements

  int64_t elements() const { return n_; }
  int64_t stride() const { return s_; }
  int64_t PositionOf(int64_t element) const { return element * s_ % n_; }
  int64_t ElementAt(int64_t position) const { return position * inverse_ % n_; }

  // Sets the bits of the elements at positions [start, start + length) mod n in a bitmap of the elements
  // from 64 * first_word on; bits behind the last element are 0. start in [0, n), length in [0, n].
  void Mark(int64_t start, int64_t length, int64_t first_word, absl::Span<uint64_t> words) const;

 private:
  int64_t n_;
  int64_t s_ = 1;
  int64_t inverse_ = 1;
};

}  // namespace tessera::worker

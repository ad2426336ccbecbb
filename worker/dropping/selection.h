// The elements of one tensor that are synchronised in one step: what a rule picks, and a window of the
// rotation that fills the budget up. Exactly `kept` elements, in ascending order, and every element at
// least once in ceil(n / window) steps.
//
// Immutable once made; reading it is thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/dropping/rotation.h"
#include "worker/kernels/kept_elements.h"

namespace tessera::worker {

class Selection {
 public:
  static constexpr int64_t kBlockWords = 64;  // a good size to ask for: 4,096 elements

  Selection() = default;
  // 1 <= kept <= elements. picks: bitmap of what is kept in any case, words [ceil(elements / 64)], at most
  // `kept` bits; empty: none. The others rotate, step by step, a window of kept - picks elements: it begins
  // at step * (kept - picks) mod elements and is as long as it takes to find so many that are not picked.
  static Selection Make(int64_t elements, int64_t kept, int64_t step, std::vector<uint64_t> picks = {});

  int64_t elements() const { return elements_; }
  int64_t kept() const { return kept_; }
  int64_t words() const { return (elements_ + 63) / 64; }
  // Bitmap of the elements from 64 * first_word on.
  void Read(int64_t first_word, absl::Span<uint64_t> words) const;
  // The same for kernels. picks: picked(), where they can read it.
  kernels::SelectionView View(const uint64_t* picks) const;
  const std::vector<uint64_t>& picked() const { return picks_; }  // bitmap; empty: nothing
  // Equal for equal selections, on every machine.
  uint64_t Fingerprint() const;

 private:
  int64_t elements_ = 0;
  int64_t kept_ = 0;
  Rotation rotation_{1};
  int64_t start_ = 0, length_ = 0;  // of the window
  std::vector<uint64_t> picks_;
};

// How many elements a rule picks of `kept`, the others rotate.
int64_t PicksOf(int64_t kept, double importance_share);

}  // namespace tessera::worker

#include "worker/dropping/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/split_mix.h"
#include "scheduler/plan/counter_random.h"

namespace tessera::worker {

Selection Selection::Make(int64_t elements, int64_t kept, int64_t step, std::vector<uint64_t> picks) {
  TESSERA_CHECK(kept >= 1 && kept <= elements && step >= 0);
  Selection selection;
  selection.elements_ = elements;
  selection.kept_ = kept;
  if (kept == elements) return selection;
  selection.rotation_ = Rotation(elements);
  int64_t picked = 0;
  for (const uint64_t word : picks) picked += std::popcount(word);
  TESSERA_CHECK(picked <= kept);
  const int64_t window = kept - picked;
  selection.start_ = static_cast<int64_t>(static_cast<__int128>(step) * window % elements);
  selection.length_ = window;
  if (picked > 0 && window > 0) {
    const int64_t stride = selection.rotation_.ElementAt(1);
    int64_t element = selection.rotation_.ElementAt(selection.start_);
    int64_t length = 0;
    for (int64_t found = 0; found < window; ++length) {
      found += static_cast<int64_t>(~picks[element >> 6] >> (element & 63) & 1);
      element += stride;
      if (element >= elements) element -= elements;
    }
    selection.length_ = length;
  }
  if (picked > 0) selection.picks_ = std::move(picks);
  return selection;
}

void Selection::Read(int64_t first_word, absl::Span<uint64_t> words) const {
  if (kept_ == elements_) {
    for (size_t w = 0; w < words.size(); ++w) {
      const int64_t left = elements_ - (first_word + static_cast<int64_t>(w)) * 64;
      words[w] = left >= 64 ? ~uint64_t{0} : left <= 0 ? 0 : (uint64_t{1} << left) - 1;
    }
    return;
  }
  if (length_ > 0) {
    rotation_.Mark(start_, length_, first_word, words);
  } else {
    std::fill(words.begin(), words.end(), 0);
  }
  if (picks_.empty()) return;
  for (size_t w = 0; w < words.size(); ++w) {
    const size_t word = static_cast<size_t>(first_word) + w;
    if (word < picks_.size()) words[w] |= picks_[word];
  }
}

kernels::SelectionView Selection::View(const uint64_t* picks) const {
  return {.elements = elements_,
          .kept = kept_,
          .stride = rotation_.stride(),
          .start = start_,
          .length = length_,
          .picks = picks_.empty() ? nullptr : picks};
}

uint64_t Selection::Fingerprint() const {
  uint64_t hash = plan::CounterRandom(static_cast<uint64_t>(elements_), static_cast<uint64_t>(kept_),
                                      static_cast<uint64_t>(start_), static_cast<uint64_t>(length_));
  for (const uint64_t word : picks_) hash = SplitMix64(hash ^ word);
  return hash;
}

int64_t PicksOf(int64_t kept, double importance_share) {
  return std::clamp<int64_t>(std::llround(importance_share * static_cast<double>(kept)), 0, kept);
}

}  // namespace tessera::worker

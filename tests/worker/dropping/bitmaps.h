// Selections as sets, for tests to look at.
#pragma once

#include <set>
#include <vector>

#include "absl/types/span.h"
#include "worker/dropping/selection.h"

namespace tessera::worker {

inline std::set<int64_t> ElementsOf(absl::Span<const uint64_t> words) {
  std::set<int64_t> elements;
  for (size_t w = 0; w < words.size(); ++w) {
    for (int bit = 0; bit < 64; ++bit) {
      if ((words[w] >> bit & 1) != 0) elements.insert(static_cast<int64_t>(w) * 64 + bit);
    }
  }
  return elements;
}

inline std::set<int64_t> ElementsOf(const Selection& selection) {
  std::vector<uint64_t> words(selection.words());
  selection.Read(0, absl::MakeSpan(words));
  return ElementsOf(words);
}

}  // namespace tessera::worker

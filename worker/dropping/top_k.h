// The k largest of n keys as a bitmap, by radix selection: exact, no sorting, no list of indices.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera::worker {

// Order of non-negative floats as unsigned numbers. What is not a number comes last, as zero.
inline uint32_t KeyOf(float score) { return score > 0 ? std::bit_cast<uint32_t>(score) : 0; }

// The key of the last pick, and how many elements with that very key are picked.
struct Threshold {
  uint32_t key = 0;
  int64_t ties = 0;
};

// Eleven bits of the key at a time, from the top: which value of them the last pick has, and how many picks
// it has among the keys that agree with it so far. Of every `stride`-th element.
template <typename Key>
Threshold ThresholdOf(int64_t elements, int64_t stride, int64_t picks, const Key& key) {
  Threshold threshold{0, picks};
  constexpr std::array<std::array<int, 2>, 3> kDigits{{{21, 11}, {10, 11}, {0, 10}}};  // shift, bits
  for (const auto& [shift, bits] : kDigits) {
    std::array<int64_t, 2048> counts{};
    const uint32_t low = (uint32_t{1} << bits) - 1;
    const uint32_t above = shift + bits == 32 ? 0 : ~uint32_t{0} << (shift + bits);
    for (int64_t i = 0; i < elements; i += stride) {
      const uint32_t k = key(i);
      if ((k & above) == threshold.key) ++counts[k >> shift & low];
    }
    auto value = static_cast<int64_t>(low);
    while (counts[value] < threshold.ties) threshold.ties -= counts[value--];
    threshold.key |= static_cast<uint32_t>(value) << shift;
  }
  return threshold;
}

// The same after one look at most elements: a sample tells between which two keys the threshold is likely to
// be; only the keys between them are looked at again. The result does not depend on the sample.
template <typename Key>
Threshold SampledThreshold(int64_t elements, int64_t picks, const Key& key) {
  constexpr int64_t kStride = 61;  // prime: no row length of a matrix repeats it
  const int64_t sampled = (elements + kStride - 1) / kStride;
  const double share = static_cast<double>(picks) / static_cast<double>(elements);
  const auto rank = static_cast<int64_t>(share * static_cast<double>(sampled));
  const auto slack = static_cast<int64_t>(4 * std::sqrt(static_cast<double>(sampled))) + 1;
  const uint32_t high =
      rank - slack < 1 ? ~uint32_t{0} : ThresholdOf(elements, kStride, rank - slack, key).key;
  const uint32_t low = rank + slack > sampled ? 0 : ThresholdOf(elements, kStride, rank + slack, key).key;
  int64_t above = 0;
  std::vector<uint32_t> between;
  for (int64_t i = 0; i < elements; ++i) {
    const uint32_t k = key(i);
    above += k > high ? 1 : 0;
    if (k >= low && k <= high) between.push_back(k);
  }
  const int64_t left = picks - above;
  if (left < 1 || left > static_cast<int64_t>(between.size())) return ThresholdOf(elements, 1, picks, key);
  return ThresholdOf(static_cast<int64_t>(between.size()), 1, left, [&](int64_t i) { return between[i]; });
}

// Sets the bits of the `picks` largest keys, of equal ones those with the lowest index; clears the others.
// key: index -> uint32_t, called several times for each index. 0 <= picks <= elements.
template <typename Key>
void MarkLargest(int64_t elements, int64_t picks, const Key& key, absl::Span<uint64_t> words) {
  for (uint64_t& word : words) word = 0;
  if (picks <= 0) return;
  constexpr int64_t kWorthSampling = 1 << 16;
  Threshold threshold = elements < kWorthSampling ? ThresholdOf(elements, 1, picks, key)
                                                  : SampledThreshold(elements, picks, key);
  for (int64_t begin = 0; begin < elements; begin += 64) {
    const int64_t end = std::min(begin + 64, elements);
    uint64_t larger = 0, equal = 0;
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t k = key(i);
      larger |= static_cast<uint64_t>(k > threshold.key) << (i - begin);
      equal |= static_cast<uint64_t>(k == threshold.key) << (i - begin);
    }
    for (; equal != 0 && threshold.ties > 0; equal &= equal - 1, --threshold.ties) larger |= equal & -equal;
    words[begin / 64] = larger;
  }
}

}  // namespace tessera::worker

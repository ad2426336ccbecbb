// The k largest of n keys as a bitmap, by radix selection: exact, no sorting, no list of indices.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/dropping/avx512.h"
#include "worker/nn/simd.h"

namespace tessera::worker {

// Order of non-negative floats as unsigned numbers. What is not a number comes last, as zero.
inline uint32_t KeyOf(float score) { return score > 0 ? std::bit_cast<uint32_t>(score) : 0; }

// The key of the last pick, and how many elements with that very key are picked.
struct Threshold {
  uint32_t key = 0;
  int64_t ties = 0;
};

// Eleven bits of the key at a time, from the top: which value of them the last pick has, and how many picks
// it has among the keys that agree with it so far.
template <typename Key>
Threshold ThresholdOf(int64_t elements, int64_t picks, const Key& key) {
  Threshold threshold{0, picks};
  constexpr std::array<std::array<int, 2>, 3> kDigits{{{21, 11}, {10, 11}, {0, 10}}};  // shift, bits
  for (const auto& [shift, bits] : kDigits) {
    std::array<int64_t, 2048> counts{};
    const uint32_t low = (uint32_t{1} << bits) - 1;
    const uint32_t above = shift + bits == 32 ? 0 : ~uint32_t{0} << (shift + bits);
    for (int64_t i = 0; i < elements; ++i) {
      const uint32_t k = key(i);
      if ((k & above) == threshold.key) ++counts[k >> shift & low];
    }
    auto value = static_cast<int64_t>(low);
    while (counts[value] < threshold.ties) threshold.ties -= counts[value--];
    threshold.key |= static_cast<uint32_t>(value) << shift;
  }
  return threshold;
}

// Calls visit(first element, keys) for 64 keys at a time; behind the last element they are 0.
template <typename Key, typename Visit>
void ForEachWordOfKeys(int64_t elements, const Key& key, const Visit& visit) {
  RunSimd([&]() TESSERA_INLINE {
    alignas(64) uint32_t keys[64] = {};
    int64_t begin = 0;
    for (; begin + 64 <= elements; begin += 64) {
      for (int64_t i = 0; i < 64; ++i) keys[i] = key(begin + i);
      visit(begin, keys);
    }
    if (begin == elements) return;
    for (int64_t i = 0; i < 64; ++i) keys[i] = begin + i < elements ? key(begin + i) : 0;
    visit(begin, keys);
  });
}

#if defined(__x86_64__)
TESSERA_AVX512 inline uint64_t BitsAboveAvx512(const uint32_t* keys, uint32_t limit) {
  const __m512i limits = _mm512_set1_epi32(static_cast<int>(limit));
  uint64_t bits = 0;
  for (int i = 0; i < 64; i += 16) {
    bits |= static_cast<uint64_t>(_mm512_cmpgt_epu32_mask(_mm512_loadu_si512(keys + i), limits)) << i;
  }
  return bits;
}
#endif

// Bit i: whether keys[i] of 64 is above `limit`.
inline uint64_t BitsAbove(const uint32_t* keys, uint32_t limit) {
#if defined(__x86_64__)
  if (HasAvx512()) return BitsAboveAvx512(keys, limit);
#endif
  uint64_t bits = 0;
  for (int i = 0; i < 64; ++i) bits |= static_cast<uint64_t>(keys[i] > limit) << i;
  return bits;
}

// Those of the first `count` keys, at most 64, that are at least `limit`.
inline uint64_t BitsFrom(const uint32_t* keys, uint32_t limit, int64_t count) {
  const uint64_t there = count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  return there & (limit == 0 ? ~uint64_t{0} : BitsAbove(keys, limit - 1));
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
  std::vector<uint32_t> keys_of_sample(static_cast<size_t>(sampled));
  for (int64_t i = 0; i < sampled; ++i) keys_of_sample[i] = key(i * kStride);
  const auto in_sample = [&](int64_t place) {
    return ThresholdOf(sampled, place, [&](int64_t i) { return keys_of_sample[i]; }).key;
  };
  const uint32_t high = rank - slack < 1 ? ~uint32_t{0} : in_sample(rank - slack);
  const uint32_t low = rank + slack > sampled ? 0 : in_sample(rank + slack);
  int64_t above = 0;
  std::vector<uint32_t> between;
  ForEachWordOfKeys(elements, key, [&](int64_t begin, const uint32_t* keys) {
    const uint64_t larger = BitsAbove(keys, high);
    above += std::popcount(larger);
    uint64_t rest = BitsFrom(keys, low, elements - begin) & ~larger;
    for (; rest != 0; rest &= rest - 1) between.push_back(keys[std::countr_zero(rest)]);
  });
  const int64_t left = picks - above;
  if (left < 1 || left > static_cast<int64_t>(between.size())) return ThresholdOf(elements, picks, key);
  return ThresholdOf(static_cast<int64_t>(between.size()), left, [&](int64_t i) { return between[i]; });
}

// Sets the bits of the `picks` largest keys, of equal ones those with the lowest index; clears the others.
// key: index -> uint32_t, called several times for each index. 0 <= picks <= elements.
template <typename Key>
void MarkLargest(int64_t elements, int64_t picks, const Key& key, absl::Span<uint64_t> words) {
  for (uint64_t& word : words) word = 0;
  if (picks <= 0) return;
  constexpr int64_t kWorthSampling = 1 << 16;
  Threshold threshold =
      elements < kWorthSampling ? ThresholdOf(elements, picks, key) : SampledThreshold(elements, picks, key);
  ForEachWordOfKeys(elements, key, [&](int64_t begin, const uint32_t* keys) {
    uint64_t larger = BitsAbove(keys, threshold.key);
    uint64_t equal = BitsFrom(keys, threshold.key, elements - begin) & ~larger;
    for (; equal != 0 && threshold.ties > 0; equal &= equal - 1, --threshold.ties) larger |= equal & -equal;
    words[begin / 64] = larger;
  });
}

}  // namespace tessera::worker

#include "worker/dropping/rotation.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "worker/dropping/avx512.h"
#include "worker/nn/simd.h"

namespace tessera::worker {
namespace {

constexpr int64_t kWordBits = 64;

int64_t InverseOf(int64_t value, int64_t modulus) {  // both coprime
  int64_t a = modulus, b = value % modulus, x = 0, y = 1;
  while (b != 0) {
    const int64_t q = a / b;
    std::swap(a -= q * b, b);
    std::swap(x -= q * y, y);
  }
  return ((x % modulus) + modulus) % modulus;
}

// bytes[i] is 0 or 1.
TESSERA_INLINE inline uint64_t Pack(const uint8_t* bytes) {
  uint64_t word = 0;
  for (int byte = 0; byte < 8; ++byte) {
    uint64_t eight = 0;
    std::memcpy(&eight, bytes + static_cast<ptrdiff_t>(8) * byte, 8);
    word |= (eight * 0x0102040810204080ULL >> 56) << (8 * byte);
  }
  return word;
}

// Of words [0, count): element by element its distance from the window's beginning, and the bits of those
// below `limit`. distance: of the first 64 elements; one word on it is `step` more, modulo n.
struct Window {
  uint32_t n, limit, step;
  const uint32_t* distance;
};

void MarkWords(const Window& window, uint64_t* out, int64_t count) {
  uint32_t distance[kWordBits];
  std::copy_n(window.distance, kWordBits, distance);
  const uint32_t n = window.n, limit = window.limit, step = window.step;
  RunSimd([&]() TESSERA_INLINE {
    alignas(64) uint8_t inside[kWordBits];
    for (int64_t w = 0; w < count; ++w) {
      for (int i = 0; i < kWordBits; ++i) inside[i] = distance[i] < limit ? 1 : 0;
      for (int i = 0; i < kWordBits; ++i) {
        const uint32_t next = distance[i] + step;  // below 2^32
        distance[i] = next < n ? next : next - n;
      }
      out[w] = Pack(inside);
    }
  });
}

#if defined(__x86_64__)
TESSERA_AVX512 void MarkWordsAvx512(const Window& window, uint64_t* out, int64_t count) {
  constexpr int kVectors = 4;  // of 16 elements
  const __m512i n = _mm512_set1_epi32(static_cast<int>(window.n));
  const __m512i limit = _mm512_set1_epi32(static_cast<int>(window.limit));
  const __m512i step = _mm512_set1_epi32(static_cast<int>(window.step));
  __m512i distance[kVectors];
  for (int v = 0; v < kVectors; ++v) distance[v] = _mm512_loadu_si512(window.distance + 16 * v);
  for (int64_t w = 0; w < count; ++w) {
    uint64_t word = 0;
    for (int v = 0; v < kVectors; ++v) {
      word |= static_cast<uint64_t>(_mm512_cmplt_epu32_mask(distance[v], limit)) << (16 * v);
      const __m512i next = _mm512_add_epi32(distance[v], step);
      distance[v] = _mm512_min_epu32(next, _mm512_sub_epi32(next, n));  // below zero is far above
    }
    out[w] = word;
  }
}
#endif

}  // namespace

Rotation::Rotation(int64_t elements) : n_(elements) {
  TESSERA_CHECK(elements >= 1 && elements <= kMostElements);
  s_ = static_cast<int64_t>(0.6180339887498949 * static_cast<double>(n_)) | 1;
  while (s_ < n_ && std::gcd(s_, n_) != 1) s_ += 2;
  if (s_ >= n_) s_ = 1;
  inverse_ = n_ == 1 ? 0 : InverseOf(s_, n_);
}

void Rotation::Mark(int64_t start, int64_t length, int64_t first_word, absl::Span<uint64_t> words) const {
  // Distances from `start` instead of positions: an element is in the window if its distance is below length.
  uint32_t distance[kWordBits];
  const int64_t begin = first_word * kWordBits;
  for (int64_t i = 0; i < kWordBits; ++i) {
    distance[i] = static_cast<uint32_t>((PositionOf((begin + i) % n_) - start + n_) % n_);
  }
  const Window window{static_cast<uint32_t>(n_), static_cast<uint32_t>(length),
                      static_cast<uint32_t>(PositionOf(kWordBits % n_)), distance};
  const auto count = static_cast<int64_t>(words.size());
#if defined(__x86_64__)
  const auto mark = HasAvx512() ? MarkWordsAvx512 : MarkWords;
#else
  const auto mark = MarkWords;
#endif
  mark(window, words.data(), count);
  for (int64_t w = std::max<int64_t>(0, n_ / kWordBits - first_word); w < count; ++w) {
    const int64_t left = n_ - (first_word + w) * kWordBits;
    if (left < kWordBits) words[w] &= left <= 0 ? 0 : (uint64_t{1} << left) - 1;
  }
}

}  // namespace tessera::worker

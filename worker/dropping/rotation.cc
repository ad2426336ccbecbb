#include "worker/dropping/rotation.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "base/check.h"
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
  const auto n = static_cast<uint32_t>(n_);
  const auto limit = static_cast<uint32_t>(length);
  uint32_t distance[kWordBits];
  const int64_t begin = first_word * kWordBits;
  for (int64_t i = 0; i < kWordBits; ++i) {
    distance[i] = static_cast<uint32_t>((PositionOf((begin + i) % n_) - start + n_) % n_);
  }
  const auto step = static_cast<uint32_t>(PositionOf(kWordBits % n_));
  uint64_t* out = words.data();
  const auto count = static_cast<int64_t>(words.size());
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
  for (int64_t w = std::max<int64_t>(0, n_ / kWordBits - first_word); w < count; ++w) {
    const int64_t left = n_ - (first_word + w) * kWordBits;
    if (left < kWordBits) words[w] &= left <= 0 ? 0 : (uint64_t{1} << left) - 1;
  }
}

}  // namespace tessera::worker

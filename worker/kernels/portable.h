// Functions of kernels that are compiled for the host as well, where tests run them against the code that
// trains on CPUs.
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define TESSERA_PORTABLE __host__ __device__ __forceinline__
#else
#define TESSERA_PORTABLE inline
#endif

namespace tessera::kernels {

inline constexpr int kWordBits = 64;  // of a bitmap
// One thread block has as many threads and does as many words.
inline constexpr int kTileWords = 256;
inline constexpr int64_t kTileElements = int64_t{kTileWords} * kWordBits;

TESSERA_PORTABLE int64_t TilesOf(int64_t elements) { return (elements + kTileElements - 1) / kTileElements; }
TESSERA_PORTABLE int64_t WordsOf(int64_t elements) { return (elements + kWordBits - 1) / kWordBits; }

TESSERA_PORTABLE int CountBits(uint64_t bits) {
#ifdef __CUDA_ARCH__
  return __popcll(bits);
#else
  return std::popcount(bits);
#endif
}

TESSERA_PORTABLE uint32_t BitsOf(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<uint32_t>(value);
#endif
}

TESSERA_PORTABLE float FloatOf(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

// Of a word, whose bit says whether the element is kept: how many are before it.
TESSERA_PORTABLE int RankInWord(uint64_t bits, int bit) {
  return CountBits(bits & ((uint64_t{1} << bit) - 1));
}

// The bits of the word that stand for elements.
TESSERA_PORTABLE uint64_t BitsInside(int64_t elements, int64_t word) {
  const int64_t left = elements - word * kWordBits;
  if (left >= kWordBits) return ~uint64_t{0};
  return left <= 0 ? 0 : (uint64_t{1} << left) - 1;
}

}  // namespace tessera::kernels

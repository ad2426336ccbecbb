// A bijective mixer of 64 bits, from which counter-based randomness is made.
// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014.
#pragma once

#include <cstdint>

namespace tessera {

constexpr uint64_t SplitMix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace tessera

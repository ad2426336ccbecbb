// Counter-based randomness: a value is a pure function of a seed and counters, so
// that everybody who knows them draws the same, in any order.
#pragma once

#include <cstdint>

#include "base/split_mix.h"

namespace tessera::plan {

constexpr uint64_t CounterRandom(uint64_t seed, uint64_t a, uint64_t b = 0, uint64_t c = 0) {
  return SplitMix64(SplitMix64(SplitMix64(SplitMix64(seed) ^ a) ^ b) ^ c);
}

}  // namespace tessera::plan

// Reading fp32 or bf16 without a branch per element, and rounding to bf16.
#pragma once

#include <bit>
#include <cstdint>

#include "worker/dropping/dropping_rule.h"

namespace tessera::worker {

inline float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Stochastic rounding: up with the probability of the part that is cut off, so that sums of many roundings
// are right in the mean. draw: 16 random bits.
inline uint16_t ToBf16(float value, uint32_t draw) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) + (draw & 0xffff)) >> 16);
}

// Calls function(value), value: index -> float. The view must not be empty.
template <typename Function>
void WithValues(const FloatView& view, const Function& function) {
  if (view.fp32 != nullptr) {
    function([p = view.fp32](int64_t i) { return p[i]; });
  } else {
    function([p = view.bf16](int64_t i) { return FromBf16(p[i]); });
  }
}

}  // namespace tessera::worker

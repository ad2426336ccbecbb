// The k most important elements of a tensor as a bitmap, by radix selection as in worker/dropping/top_k.h:
// three passes over the keys find the threshold, one marks. Portable parts; the passes themselves are loops
// on the host and kernels on a device.
#pragma once

#include "worker/kernels/kept_elements.h"
#include "worker/kernels/portable.h"

namespace tessera::kernels {

inline constexpr int kDigits = 3;
inline constexpr int kDigitValues = 2048;

// What makes an element important: the rules that are computed where the tensors are.
enum class Importance : uint8_t { kSecondMoment, kMomentumRatio, kResidual };

struct ImportanceInput {
  Importance importance = Importance::kSecondMoment;
  const float* first_moment = nullptr;
  const float* second_moment = nullptr;
  const float* residual_fp32 = nullptr;  // or
  const uint16_t* residual_bf16 = nullptr;
};

// Order of non-negative floats as unsigned numbers; what is not a number comes last.
TESSERA_PORTABLE uint32_t ScoreKey(float score) { return score > 0 ? BitsOf(score) : 0; }

TESSERA_PORTABLE uint32_t KeyOfElement(const ImportanceInput& input, int64_t i) {
  if (input.importance == Importance::kSecondMoment) return ScoreKey(input.second_moment[i]);
  if (input.importance == Importance::kMomentumRatio) {
    const float m = input.first_moment[i], v = input.second_moment[i];
    return v > 0 ? ScoreKey(m * m / v) : 0;
  }
  const float r =
      input.residual_fp32 != nullptr ? input.residual_fp32[i] : FromBf16Bits(input.residual_bf16[i]);
  return ScoreKey(r < 0 ? -r : r);
}

struct RadixThreshold {
  uint32_t key = 0;  // of the last pick
  int64_t ties = 0;  // picks with that very key; before the first pass: all picks
};

struct Digit {
  int shift, bits;
  uint32_t above;  // mask of the bits that are known
};

TESSERA_PORTABLE Digit DigitOfPass(int pass) {
  if (pass == 0) return {21, 11, 0};
  if (pass == 1) return {10, 11, ~uint32_t{0} << 21};
  return {0, 10, ~uint32_t{0} << 10};
}

// Where the key counts in this pass; -1: nowhere.
TESSERA_PORTABLE int DigitOfKey(uint32_t key, const RadixThreshold& threshold, const Digit& digit) {
  if ((key & digit.above) != threshold.key) return -1;
  return static_cast<int>(key >> digit.shift & ((uint32_t{1} << digit.bits) - 1));
}

// counts [kDigitValues] of this pass.
template <typename Count>
TESSERA_PORTABLE RadixThreshold NextThreshold(RadixThreshold threshold, const Digit& digit,
                                              const Count* counts) {
  int value = (1 << digit.bits) - 1;
  while (value > 0 && static_cast<int64_t>(counts[value]) < threshold.ties) {
    threshold.ties -= static_cast<int64_t>(counts[value--]);
  }
  threshold.key |= static_cast<uint32_t>(value) << digit.shift;
  return threshold;
}

// The lowest `count` bits of those set.
TESSERA_PORTABLE uint64_t LowestBits(uint64_t bits, int64_t count) {
  if (count >= CountBits(bits)) return bits;
  uint64_t taken = 0;
  for (; count > 0; --count) {
    taken |= bits & (~bits + 1);
    bits &= bits - 1;
  }
  return taken;
}

// Of a chunk of 64 residuals, the sum with signs of one row of the sketch (worker/dropping/sketch.h), in the
// order of the host's sixteen lanes.
TESSERA_PORTABLE float SketchNumber(const ImportanceInput& input, int64_t chunk, uint64_t signs) {
  float sum = 0;
  for (int lane = 0; lane < 16; ++lane) {
    float part = 0;
    for (int i = lane; i < kWordBits; i += 16) {
      const int64_t at = chunk * kWordBits + i;
      const float x =
          input.residual_fp32 != nullptr ? input.residual_fp32[at] : FromBf16Bits(input.residual_bf16[at]);
      part += x * ((signs >> i & 1) != 0 ? 1.0f : -1.0f);
    }
    sum += part;
  }
  return sum;
}

}  // namespace tessera::kernels

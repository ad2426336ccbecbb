#include "worker/models/normal.h"

#include <ATen/Parallel.h>

#include <bit>
#include <cmath>

#include "base/split_mix.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

namespace tessera::worker {
namespace {

uint64_t Hash(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ULL;
  return hash;
}

// The library's log, sin and cos may differ in the last bit from processor to
// processor; these use addition, multiplication and division only.
// Contraction into fused operations would round differently.
double Log(double x) {  // x > 0, normal
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1), square = s * s;  // log m = 2 atanh(s)
  double series = 0;
  for (int k = 21; k >= 1; k -= 2) series = series * square + 1.0 / k;
  return exponent * 0.6931471805599453 + 2 * s * series;
}

struct Direction {
  double cosine;
  double sine;
};
Direction Turn(double u) {  // of the angle 2 pi u, u in [0, 1)
  const int quarter = static_cast<int>(std::lround(u * 4));
  const double angle = (u - quarter * 0.25) * 6.283185307179586, square = angle * angle;
  double cosine = 1, sine = 1;  // Taylor, from the last term; |angle| <= pi/4
  for (int k = 16; k >= 2; k -= 2) cosine = 1 - cosine * square / (k * (k - 1));
  for (int k = 17; k >= 3; k -= 2) sine = 1 - sine * square / (k * (k - 1));
  sine *= angle;
  switch (quarter & 3) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

}  // namespace

void FillNormal(uint64_t seed, std::string_view stream, double deviation, std::span<float> out) {
  const uint64_t key = SplitMix64(SplitMix64(seed) ^ Hash(stream));
  const int64_t pairs = (static_cast<int64_t>(out.size()) + 1) / 2;
  at::parallel_for(0, pairs, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      // Box and Muller: 53 bits for the radius (never log 0), 53 for the angle.
      const uint64_t a = SplitMix64(key + 2 * static_cast<uint64_t>(pair)),
                     b = SplitMix64(key + 2 * static_cast<uint64_t>(pair) + 1);
      const double u = (static_cast<double>(a >> 11) + 0.5) * 0x1p-53;
      const double radius = deviation * std::sqrt(-2 * Log(u));
      const Direction direction = Turn(static_cast<double>(b >> 11) * 0x1p-53);
      out[2 * pair] = static_cast<float>(radius * direction.cosine);
      if (2 * pair + 1 < static_cast<int64_t>(out.size())) {
        out[2 * pair + 1] = static_cast<float>(radius * direction.sine);
      }
    }
  });
}

}  // namespace tessera::worker

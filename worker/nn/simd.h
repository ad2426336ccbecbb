// Runs a loop compiled for the widest vectors of the processor at hand. The
// program itself is built for the baseline; only these loops have copies.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera::worker {

#define TESSERA_INLINE __attribute__((always_inline))

#if defined(__x86_64__)
template <typename Body>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) void RunAvx512(const Body& body) {
  body();
}
template <typename Body>
__attribute__((target("avx2,fma"))) void RunAvx2(const Body& body) {
  body();
}
#endif

// body: a lambda marked TESSERA_INLINE whose loops the compiler can vectorise.
template <typename Body>
void RunSimd(const Body& body) {
#if defined(__x86_64__)
  static const int level = __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                                   __builtin_cpu_supports("avx512bw")
                               ? 2
                           : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1
                                                                                             : 0;
  if (level == 2) return RunAvx512(body);
  if (level == 1) return RunAvx2(body);
#endif
  body();
}

inline constexpr int kLanes = 16;

// Sum of term(i) for i in [0, count), in kLanes partial sums.
template <typename Term>
TESSERA_INLINE inline float LaneSum(int64_t count, const Term& term) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] += term(i + j);
  }
  float sum = 0;
  for (; i < count; ++i) sum += term(i);
  for (int j = 0; j < kLanes; ++j) sum += lanes[j];
  return sum;
}

// exp(x) within 2 units in the last place, without branches: 2^n * exp(r) with
// |r| <= ln(2)/2. Saturates outside [-87, 88].
TESSERA_INLINE inline float VectorExp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float n = (x * 1.44269504f + kRound) - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

}  // namespace tessera::worker

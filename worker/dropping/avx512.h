// Functions that are compiled for AVX-512 in a program for the baseline, and whether the processor has it.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#define TESSERA_AVX512 __attribute__((target("avx512f")))

namespace tessera::worker {

inline bool HasAvx512() {
  static const bool has = __builtin_cpu_supports("avx512f") != 0;
  return has;
}

}  // namespace tessera::worker
#endif

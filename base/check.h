// CHECK: a programmer's error ends the process. Never for input or environment.
#pragma once

#include <cstdio>
#include <cstdlib>

#define TESSERA_CHECK(condition)                                                              \
  do {                                                                                        \
    if (!(condition)) [[unlikely]] {                                                          \
      std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition);      \
      std::abort();                                                                           \
    }                                                                                         \
  } while (false)

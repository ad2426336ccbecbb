// Normally distributed numbers as a pure function of (seed, stream, position).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tessera::worker {

// Fills `out` with mean 0 and the given deviation. Position i of a stream is
// always the same bits: on one thread or many, on any processor (nothing but exactly
// rounded operations is used), whatever was drawn before. stream: a parameter's name.
void FillNormal(uint64_t seed, std::string_view stream, double deviation, std::span<float> out);

}  // namespace tessera::worker

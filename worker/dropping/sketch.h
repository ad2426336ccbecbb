// A small linear sketch of a tensor: per chunk of 64 elements a few sums with random signs, whose sum over
// the holders is the sketch of the sum. After ARC-Top-K (arXiv 2510.26709, section 3).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/dropping/dropping_rule.h"

namespace tessera::worker {

inline constexpr int64_t kChunkElements = 64;
inline constexpr int64_t kSketchNumbers = 4;  // per chunk

// Whole chunks only: elements behind the last one are left to the rotation.
inline int64_t SketchElements(int64_t elements) { return elements / kChunkElements * kSketchNumbers; }

// Of row r, one for each of a chunk's elements: the same for all chunks of the tensor. Set: +1.
uint64_t SketchSigns(const RuleInput& input, int64_t row);

// Adds nothing where there is no residual. Signs are drawn from (seed, tensor, step).
std::vector<float> SketchOf(const RuleInput& input);

}  // namespace tessera::worker

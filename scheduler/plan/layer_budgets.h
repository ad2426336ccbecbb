// How many gradient elements of each layer are synchronised in a step.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera::plan {

// A layer is one parameter tensor; embeddings and head are layers like others.
struct LayerDemand {
  int64_t elements = 0;
  double importance = 0;  // sum of the square roots of the second moments; >= 0
  double floor = 0;       // least share of its elements, 0-1
  double ceiling = 1;     // largest; a layer kept whole has both at 1
};

// Kept elements by layer. They sum to round(density * elements of all layers) exactly. Where its bounds
// leave it free, a layer gets in proportion to its importance (water-filling; Jefferson's method in whole
// elements, so that no layer loses when the density rises). Layers without importance share as if they had
// a millionth of the mean; if none has any, all do in proportion to their elements. A layer with elements
// keeps at least one: everything moves in the end. Ties go to the lower index. A pure function.
//
// InvalidArgument: density outside (0, 1], a floor above its ceiling, an importance that is not finite,
// or bounds that cannot sum to the density; names the nearest density that can be.
absl::StatusOr<std::vector<int64_t>> LayerBudgets(double density, absl::Span<const LayerDemand> layers);

// Of a layer with `elements` that keeps `kept`, what its elements [begin, end) keep. The parts of any
// division of the layer sum to `kept`.
int64_t KeptOfPart(int64_t elements, int64_t kept, int64_t begin, int64_t end);
// The same where no worker contributes more than `share` of it, 0-1. A layer that is kept whole stays so; at
// least one element.
int64_t KeptOfPiece(int64_t elements, int64_t kept, int64_t begin, int64_t end, double share);

}  // namespace tessera::plan

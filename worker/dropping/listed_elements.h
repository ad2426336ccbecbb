// Elements of a tensor that travel with their indices: what each of several ranks has selected for itself, as
// lists of ascending indices with a value for each, and their sum.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/selection.h"

namespace tessera::worker {

// The selected elements' indices, ascending -> indices [selection.kept()].
void ListKept(const Selection& selection, int32_t* indices);

// A bitmap [ceil(elements / 64)] of what any of the lists has. Internal: an index is none of the tensor's, or
// a list does not ascend.
absl::StatusOr<std::vector<uint64_t>> JoinLists(int64_t elements,
                                                absl::Span<const absl::Span<const int32_t>> lists);

// Adds values [indices.size()] to `sum` [selection.kept()], each to its element's; the selection has them
// all.
void AddListed(const Selection& selection, absl::Span<const int32_t> indices, const FloatView& values,
               float* sum);

}  // namespace tessera::worker

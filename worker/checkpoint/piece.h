// The terms in which a checkpoint speaks of model states: pieces of parameters. Whoever holds what, in
// blocks, in chunks of an axis, sharded or not, says so in pieces, and any set of pieces can be
// filled from any other set that covers it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/plan/model_shape.h"

namespace tessera::worker {

// The elements [first, first + count) of the slice [begin, begin + length) of dimension `dim` of a tensor. A
// whole slice has them in row-major order. A part of one counts them with `dim` moved to the front, so that a
// row of it, all that belongs to one index of `dim`, stays together whatever the dimension.
struct Piece {
  int parameter = 0;  // index into ModelShape::parameters, then into its buffers
  int dim = 0;
  int64_t begin = 0, length = 0;
  int64_t first = 0, count = 0;

  bool operator==(const Piece&) const = default;
};

int TensorCount(const plan::ModelShape& shape);                      // parameters and buffers
Piece WholeParameter(const plan::ModelShape& shape, int parameter);  // or buffer
// A whole slice.
Piece Slice(const plan::ModelShape& shape, int parameter, int dim, int64_t begin, int64_t length);

// Inside its parameter. Pieces read from a file are checked by this before any other use.
bool IsValid(const plan::ModelShape& shape, const Piece& piece);

// As a tensor's name and dims in a file: a whole parameter under its own name, a slice as
// "name[dim:begin:length]" in the slice's shape, a part of one as "name[dim:begin:length]{first:count}",
// flat.
std::string PieceName(const plan::ModelShape& shape, const Piece& piece);
std::vector<int64_t> PieceDims(const plan::ModelShape& shape, const Piece& piece);

// Copies what both have from `from_data` to `to_data`, which hold the pieces' elements in their order.
// Returns the number of elements.
int64_t CopyOverlap(const plan::ModelShape& shape, const Piece& from, const float* from_data, const Piece& to,
                    float* to_data);

// Whether the pieces hold every element of every parameter and buffer exactly once, those of one cut along
// one dimension. DataLoss names the first of which something is missing or twice there.
absl::Status CheckCoverage(const plan::ModelShape& shape, std::vector<Piece> pieces);

}  // namespace tessera::worker

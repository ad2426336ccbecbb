#include "worker/checkpoint/piece.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace tessera::worker {
namespace {

// Elements that are neighbours both in the parameter and in the piece.
struct Run {
  int64_t at = 0;  // in the whole parameter, row-major
  int64_t count = 0;
  int64_t offset = 0;  // in the piece
};

bool IsBuffer(const plan::ModelShape& shape, int tensor) {
  return tensor >= static_cast<int>(shape.parameters.size());
}

const std::string& NameOf(const plan::ModelShape& shape, int tensor) {
  return IsBuffer(shape, tensor) ? shape.buffers[static_cast<size_t>(tensor) - shape.parameters.size()].name
                                 : shape.parameters[tensor].name;
}

const std::vector<int64_t>& OwnDims(const plan::ModelShape& shape, int tensor) {
  return IsBuffer(shape, tensor) ? shape.buffers[static_cast<size_t>(tensor) - shape.parameters.size()].dims
                                 : shape.parameters[tensor].dims;
}

std::vector<int64_t> DimsOf(const plan::ModelShape& shape, int tensor) {
  const std::vector<int64_t>& dims = OwnDims(shape, tensor);
  return dims.empty() ? std::vector<int64_t>{1} : dims;
}

int64_t Product(const std::vector<int64_t>& dims, size_t first, size_t last) {
  int64_t product = 1;
  for (size_t i = first; i < last; ++i) product *= dims[i];
  return product;
}

bool IsWholeSlice(const plan::ModelShape& shape, const Piece& piece) {
  return piece == Slice(shape, piece.parameter, piece.dim, piece.begin, piece.length);
}

// Between a piece's elements and those of the whole tensor, both by number.
class Numbering {
 public:
  Numbering(const plan::ModelShape& shape, const Piece& piece)
      : piece_(piece), dim_first_(piece.dim > 0 && !IsWholeSlice(shape, piece)) {
    const std::vector<int64_t> dims = DimsOf(shape, piece.parameter);
    const auto dim = static_cast<size_t>(piece.dim);
    outer_ = Product(dims, 0, dim);
    size_ = dims[dim];
    inner_ = Product(dims, dim + 1, dims.size());
  }
  bool dim_first() const { return dim_first_; }

  int64_t ToTensor(int64_t element) const {
    const int64_t e = element + piece_.first;
    const int64_t inner = e % inner_, rest = e / inner_;
    const int64_t index = dim_first_ ? rest / outer_ : rest % piece_.length;
    const int64_t outer = dim_first_ ? rest % outer_ : rest / piece_.length;
    return (outer * size_ + piece_.begin + index) * inner_ + inner;
  }
  int64_t FromTensor(int64_t at) const {  // -1: not in the piece
    const int64_t inner = at % inner_, rest = at / inner_;
    const int64_t index = rest % size_ - piece_.begin, outer = rest / size_;
    if (index < 0 || index >= piece_.length) return -1;
    const int64_t e = (dim_first_ ? index * outer_ + outer : outer * piece_.length + index) * inner_ + inner;
    return e >= piece_.first && e < piece_.first + piece_.count ? e - piece_.first : -1;
  }
  // Of dim_first pieces: where the piece lies in the tensor with its dimension moved to the front.
  int64_t FirstByDim() const { return piece_.begin * outer_ * inner_ + piece_.first; }

 private:
  const Piece piece_;
  const bool dim_first_;
  int64_t outer_ = 1, size_ = 1, inner_ = 1;
};

// Not of dim_first pieces. Ascending in both. A slice of the first dimension is one run, of a later one a run
// per index before it.
std::vector<Run> RunsOf(const plan::ModelShape& shape, const Piece& piece) {
  const std::vector<int64_t> dims = DimsOf(shape, piece.parameter);
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(piece.dim) + 1; i < dims.size(); ++i) inner *= dims[i];
  const int64_t row = piece.length * inner, stride = dims[piece.dim] * inner;
  std::vector<Run> runs;
  for (int64_t done = 0; done < piece.count;) {
    const int64_t element = piece.first + done;  // of the slice
    const int64_t within = element % row;
    const int64_t count = std::min(row - within, piece.count - done);
    const int64_t at = element / row * stride + piece.begin * inner + within;
    if (!runs.empty() && runs.back().at + runs.back().count == at) {
      runs.back().count += count;
    } else {
      runs.push_back({at, count, done});
    }
    done += count;
  }
  return runs;
}

int64_t CopyRuns(const std::vector<Run>& source, const float* from_data, const std::vector<Run>& target,
                 float* to_data) {
  int64_t copied = 0;
  for (size_t s = 0, t = 0; s < source.size() && t < target.size();) {
    const Run &a = source[s], &b = target[t];
    const int64_t begin = std::max(a.at, b.at), end = std::min(a.at + a.count, b.at + b.count);
    if (begin < end) {
      std::memcpy(to_data + b.offset + (begin - b.at), from_data + a.offset + (begin - a.at),
                  static_cast<size_t>(end - begin) * sizeof(float));
      copied += end - begin;
    }
    (a.at + a.count < b.at + b.count ? s : t) += 1;
  }
  return copied;
}

}  // namespace

int TensorCount(const plan::ModelShape& shape) {
  return static_cast<int>(shape.parameters.size() + shape.buffers.size());
}

Piece WholeParameter(const plan::ModelShape& shape, int parameter) {
  return Slice(shape, parameter, 0, 0, DimsOf(shape, parameter)[0]);
}

Piece Slice(const plan::ModelShape& shape, int parameter, int dim, int64_t begin, int64_t length) {
  int64_t count = length;
  const std::vector<int64_t> dims = DimsOf(shape, parameter);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (static_cast<int>(i) != dim) count *= dims[i];
  }
  return {parameter, dim, begin, length, 0, count};
}

bool IsValid(const plan::ModelShape& shape, const Piece& piece) {
  if (piece.parameter < 0 || piece.parameter >= TensorCount(shape)) return false;
  const std::vector<int64_t> dims = DimsOf(shape, piece.parameter);
  if (piece.dim < 0 || piece.dim >= static_cast<int>(dims.size())) return false;
  if (piece.begin < 0 || piece.length < 1 || piece.begin > dims[piece.dim] - piece.length) return false;
  const int64_t elements = Slice(shape, piece.parameter, piece.dim, piece.begin, piece.length).count;
  return piece.first >= 0 && piece.count >= 1 && piece.first <= elements - piece.count;
}

std::string PieceName(const plan::ModelShape& shape, const Piece& piece) {
  const std::string& name = NameOf(shape, piece.parameter);
  const Piece slice = Slice(shape, piece.parameter, piece.dim, piece.begin, piece.length);
  const bool whole_slice = piece == slice;
  if (whole_slice && piece.length == DimsOf(shape, piece.parameter)[piece.dim]) return name;
  return absl::StrCat(name, "[", piece.dim, ":", piece.begin, ":", piece.length, "]",
                      whole_slice ? "" : absl::StrCat("{", piece.first, ":", piece.count, "}"));
}

std::vector<int64_t> PieceDims(const plan::ModelShape& shape, const Piece& piece) {
  if (piece != Slice(shape, piece.parameter, piece.dim, piece.begin, piece.length)) return {piece.count};
  std::vector<int64_t> dims = OwnDims(shape, piece.parameter);
  if (!dims.empty()) dims[piece.dim] = piece.length;
  return dims;
}

int64_t CopyOverlap(const plan::ModelShape& shape, const Piece& from, const float* from_data, const Piece& to,
                    float* to_data) {
  if (from.parameter != to.parameter) return 0;
  const Numbering source_numbers(shape, from), target_numbers(shape, to);
  if (!source_numbers.dim_first() && !target_numbers.dim_first()) {
    return CopyRuns(RunsOf(shape, from), from_data, RunsOf(shape, to), to_data);
  }
  if (source_numbers.dim_first() && target_numbers.dim_first() && from.dim == to.dim) {
    return CopyRuns({{source_numbers.FirstByDim(), from.count, 0}}, from_data,
                    {{target_numbers.FirstByDim(), to.count, 0}}, to_data);
  }
  int64_t copied = 0;
  for (int64_t e = 0; e < std::min(from.count, to.count); ++e) {
    const bool by_target = to.count <= from.count;
    const int64_t s = by_target ? source_numbers.FromTensor(target_numbers.ToTensor(e)) : e;
    const int64_t t = by_target ? e : target_numbers.FromTensor(source_numbers.ToTensor(e));
    if (s < 0 || t < 0) continue;
    to_data[t] = from_data[s];
    ++copied;
  }
  return copied;
}

absl::Status CheckCoverage(const plan::ModelShape& shape, std::vector<Piece> pieces) {
  for (const Piece& piece : pieces) {
    if (!IsValid(shape, piece)) {
      return absl::DataLossError(absl::StrCat("a piece of tensor ", piece.parameter, " lies outside of it"));
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.parameter, a.dim, a.begin, a.length, a.first) <
           std::tie(b.parameter, b.dim, b.begin, b.length, b.first);
  });
  size_t next = 0;
  for (int tensor = 0; tensor < TensorCount(shape); ++tensor) {
    const auto there = [&] { return next < pieces.size() && pieces[next].parameter == tensor; };
    const int dim = there() ? pieces[next].dim : 0;
    int64_t end = 0;  // of the dimension, tiled by slices
    bool whole = there();
    while (there()) {
      const Piece slice = Slice(shape, tensor, pieces[next].dim, pieces[next].begin, pieces[next].length);
      whole &= slice.dim == dim && slice.begin == end;
      end = slice.begin + slice.length;
      int64_t done = 0;  // of the slice, tiled by its parts
      for (; there() && pieces[next].dim == slice.dim && pieces[next].begin == slice.begin &&
             pieces[next].length == slice.length;
           ++next) {
        whole &= pieces[next].first == done;
        done = pieces[next].first + pieces[next].count;
      }
      whole &= done == slice.count;
    }
    if (!whole || end != DimsOf(shape, tensor)[dim]) {
      return absl::DataLossError(
          absl::StrCat("not every element of ", NameOf(shape, tensor), " is there exactly once"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker

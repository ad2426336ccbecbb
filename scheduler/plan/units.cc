#include "scheduler/plan/units.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tessera::plan {
namespace {

const char* AxisName(Axis axis) {
  switch (axis) {
    case Axis::kHead:
      return "head";
    case Axis::kFfn:
      return "ffn";
    case Axis::kChannel:
      return "channel";
    case Axis::kNone:
      break;
  }
  return "none";
}

int64_t Chunks(int64_t most, int workers) {
  int64_t best = 1;
  bool even = false;  // a multiple of the workers
  for (int64_t n = 1; n <= std::min(most, kMostChunks); ++n) {
    if (most % n != 0) continue;
    const bool multiple = n % workers == 0;
    if (even && !multiple) continue;
    best = n;
    even = multiple;
  }
  return best;
}

// Along which dimension a parameter is cut; -1: it is whole.
absl::StatusOr<int> CutDimension(const Parameter& parameter) {
  int dim = -1;
  for (size_t d = 0; d < parameter.axes.size(); ++d) {
    if (parameter.axes[d] == Axis::kNone) continue;
    if (dim >= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", parameter.name, ": is cut along two of its dimensions"));
    }
    dim = static_cast<int>(d);
  }
  return dim;
}

class UnitMaker {
 public:
  UnitMaker(const ModelShape& shape, int workers) : shape_(shape), workers_(workers) {}

  void AddWhole(const std::string& name, int block, bool always_on, double flops = 0) {
    rest_of_block_.push_back(static_cast<int>(table_.units.size()));
    first_chunk_.emplace_back();
    table_.units.push_back({.name = name, .block = block, .always_on = always_on, .flops_per_token = flops});
  }

  // An always-on unit for what no axis cuts, and one unit per chunk.
  void AddChunks(int block) {
    const Block& b = shape_.blocks[block];
    AddWhole(b.name, block, true);
    for (const BlockAxis& axis : b.axes) {
      const int64_t chunks = Chunks(std::max<int64_t>(1, axis.chunks), workers_);
      first_chunk_.back().push_back({axis.axis, static_cast<int>(table_.units.size()), chunks});
      for (int64_t c = 0; c < chunks; ++c) {
        table_.units.push_back({.name = absl::StrCat(b.name, ".", AxisName(axis.axis), ".", c),
                                .block = block,
                                .axis = axis.axis,
                                .chunk = c});
      }
    }
  }

  absl::Status Divide(int index) {
    const Parameter& parameter = shape_.parameters[index];
    const int entry = parameter.block + 1;
    const int rest = rest_of_block_[entry];
    TESSERA_ASSIGN_OR_RETURN(const int dim, CutDimension(parameter));
    for (const Cut& cut : first_chunk_[entry]) {
      if (dim < 0 || parameter.axes[dim] != cut.axis) continue;
      const int64_t whole = parameter.dims[dim];
      if (whole % cut.chunks != 0) {
        return absl::InvalidArgumentError(absl::StrCat("parameter ", parameter.name, ": ", whole,
                                                       " indices can't be cut into ", cut.chunks, " chunks"));
      }
      const int64_t length = whole / cut.chunks;
      for (int64_t c = 0; c < cut.chunks; ++c) {
        Add({.unit = cut.unit + static_cast<int>(c),
             .parameter = index,
             .dim = dim,
             .begin = c * length,
             .length = length,
             .elements = parameter.elements() / cut.chunks,
             .whole = cut.chunks == 1});
      }
      return absl::OkStatus();
    }
    const int64_t length = parameter.dims.empty() ? 1 : parameter.dims[0];
    Add({.unit = rest, .parameter = index, .length = length, .elements = parameter.elements()});
    return absl::OkStatus();
  }

  // FLOPs of a block are in proportion to the elements that are cut; its rest has them if nothing is.
  UnitTable Finish() {
    for (size_t entry = 1; entry < rest_of_block_.size(); ++entry) {
      Unit& rest = table_.units[rest_of_block_[entry]];
      double cut = 0;
      ForEachChunk(entry, [&](const Unit& unit) { cut += static_cast<double>(unit.elements); });
      if (cut == 0) rest.flops_per_token = shape_.blocks[rest.block].flops_per_token;
      ForEachChunk(entry, [&](Unit& unit) {
        if (cut == 0) return;
        unit.flops_per_token =
            shape_.blocks[unit.block].flops_per_token * static_cast<double>(unit.elements) / cut;
      });
    }
    return std::move(table_);
  }

 private:
  struct Cut {
    Axis axis = Axis::kNone;
    int unit = 0;  // of the first chunk
    int64_t chunks = 1;
  };

  template <typename Function>
  void ForEachChunk(size_t entry, const Function& function) {
    for (const Cut& cut : first_chunk_[entry]) {
      for (int64_t c = 0; c < cut.chunks; ++c) function(table_.units[cut.unit + c]);
    }
  }

  void Add(const Slice& slice) {
    table_.units[slice.unit].elements += slice.elements;
    table_.slices.push_back(slice);
  }

  const ModelShape& shape_;
  int workers_;
  UnitTable table_;
  std::vector<int> rest_of_block_;             // by block + 1
  std::vector<std::vector<Cut>> first_chunk_;  // by block + 1
};

}  // namespace

absl::StatusOr<UnitTable> MakeUnits(const ModelShape& shape, Granularity granularity, bool ends_always_on,
                                    int workers) {
  const int blocks = static_cast<int>(shape.blocks.size());
  UnitMaker maker(shape, workers);
  maker.AddWhole("base", kNoBlock, true, shape.base_flops_per_token);
  for (int b = 0; b < blocks; ++b) {
    const Block& block = shape.blocks[b];
    const bool end = ends_always_on && (b == 0 || b == blocks - 1);
    const bool always_on = end || (granularity == Granularity::kBlock && !block.maskable);
    if (granularity == Granularity::kNeuron && !always_on) {
      maker.AddChunks(b);
    } else {
      maker.AddWhole(block.name, b, always_on);
    }
  }
  for (size_t p = 0; p < shape.parameters.size(); ++p) {
    const Parameter& parameter = shape.parameters[p];
    if (parameter.block < kNoBlock || parameter.block >= blocks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", parameter.name, ": block ", parameter.block, " of a model with ", blocks, " blocks"));
    }
    TESSERA_RETURN_IF_ERROR(maker.Divide(static_cast<int>(p)));
  }
  return maker.Finish();
}

}  // namespace tessera::plan

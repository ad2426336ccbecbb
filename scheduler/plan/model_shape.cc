#include "scheduler/plan/model_shape.h"

#include <cmath>

#include "scheduler/plan/fingerprint.h"

namespace tessera::plan {
namespace {

// FLOPs are whole numbers; the detour keeps a last bit of rounding out of the fingerprint.
int64_t WholeFlops(double flops) { return static_cast<int64_t>(std::llround(flops)); }

}  // namespace

int64_t Parameter::elements() const {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

int64_t ModelShape::elements() const {
  int64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += parameter.elements();
  return sum;
}

int64_t ModelShape::block_elements(int block) const {
  int64_t sum = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.block == block) sum += parameter.elements();
  }
  return sum;
}

double ModelShape::flops_per_token() const {
  double sum = base_flops_per_token;
  for (const Block& block : blocks) sum += block.flops_per_token;
  return sum;
}

uint64_t ModelShape::Fingerprint() const {
  FingerprintBuilder builder;
  builder.Add(model).Add(vocab_size).Add(WholeFlops(base_flops_per_token));
  builder.Add(static_cast<int64_t>(parameters.size()));
  for (const Parameter& parameter : parameters) {
    builder.Add(parameter.name).Add(parameter.block).Add(parameter.decay);
    builder.Add(static_cast<int64_t>(parameter.dims.size()));
    for (int64_t dim : parameter.dims) builder.Add(dim);
    builder.Add(static_cast<int64_t>(parameter.axes.size()));
    for (Axis axis : parameter.axes) builder.Add(static_cast<int>(axis));
  }
  builder.Add(static_cast<int64_t>(blocks.size()));
  for (const Block& block : blocks) {
    builder.Add(block.name).Add(block.maskable).Add(WholeFlops(block.flops_per_token)).Add(block.kind);
    builder.Add(static_cast<int64_t>(block.axes.size()));
    for (const BlockAxis& axis : block.axes) builder.Add(static_cast<int>(axis.axis)).Add(axis.chunks);
  }
  return builder.Finish();
}

}  // namespace tessera::plan

#include "scheduler/plan/units.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tessera::plan {

absl::StatusOr<UnitTable> MakeUnits(const ModelShape& shape, Granularity granularity, bool ends_always_on) {
  if (granularity != Granularity::kBlock) {
    return absl::UnimplementedError("granularity: only 'block' is implemented; 'neuron' is not");
  }
  UnitTable table;
  table.units.push_back({.name = "base", .always_on = true, .flops_per_token = shape.base_flops_per_token});
  const int blocks = static_cast<int>(shape.blocks.size());
  for (int b = 0; b < blocks; ++b) {
    const Block& block = shape.blocks[b];
    const bool end = ends_always_on && (b == 0 || b == blocks - 1);
    table.units.push_back({.name = block.name,
                           .block = b,
                           .always_on = end || !block.maskable,
                           .flops_per_token = block.flops_per_token});
  }
  for (const Parameter& parameter : shape.parameters) {
    if (parameter.block < kNoBlock || parameter.block >= blocks) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", parameter.name, ": block ", parameter.block, " of a model with ", blocks, " blocks"));
    }
    const int unit = parameter.block + 1;
    table.unit_of_parameter.push_back(unit);
    table.units[unit].elements += parameter.elements();
  }
  return table;
}

}  // namespace tessera::plan

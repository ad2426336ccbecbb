#include "worker/train/optimizer.h"

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerOptions& options) {
  if (options.name == "adamw") return MakeAdamW(options);
  if (options.name == "sgd") return MakeSgd(options);
  return absl::InvalidArgumentError(
      absl::StrCat("spec.optimizer.name: '", options.name, "' is unknown; use adamw or sgd"));
}

SpanLists ListSpans(const GroupState& state, bool decay) {
  SpanLists lists;
  for (const StateSpan& span : state.spans) {
    if (span.decay != decay || span.kept != nullptr) continue;
    lists.moments.resize(span.moments.size());
    lists.parameters.push_back(span.parameters);
    lists.gradients.push_back(span.gradients);
    for (size_t i = 0; i < span.moments.size(); ++i) lists.moments[i].push_back(span.moments[i]);
  }
  return lists;
}

}  // namespace tessera::worker

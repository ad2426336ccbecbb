// placed: for workers that differ in memory, speed or link. The slowest finishes as early as can be, and
// nobody holds more than fits (placement.h).
#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/plan/mask_scheme.h"
#include "scheduler/plan/placement.h"

namespace tessera::plan {
namespace {

constexpr double kPasses = 3;          // forward, input gradients, weight gradients
constexpr int64_t kGradientBytes = 4;  // of an element
constexpr int64_t kMostBytes = int64_t{1} << 60;

PlacementRequest Question(const SchemeInput& input) {
  PlacementRequest question{.coverage = input.coverage,
                            .safety_margin = 0,  // the capacities are what may be used
                            .min_holders = input.min_holders,
                            .min_gap = input.min_gap,
                            .seed = input.seed,
                            .remedies = false};
  question.always_on = {.elements = input.always_on_elements,
                        .bytes = input.costs.always_on,
                        .flops_per_sample = kPasses * input.always_on_flops,
                        .sync_bytes = kGradientBytes * input.always_on_elements};
  for (int u = 0; u < input.units(); ++u) {
    question.units.push_back({.elements = input.elements[u],
                              .bytes = input.costs.units[u],
                              .flops_per_sample = kPasses * input.loads[u],
                              .sync_bytes = kGradientBytes * input.elements[u]});
  }
  bool links = false;
  for (const WorkerCapacity& capacity : input.capacities) links |= capacity.bytes_per_second > 0;
  for (const WorkerCapacity& capacity : input.capacities) {
    PlacementWorker worker{.bytes_per_second = capacity.bytes_per_second};
    if (capacity.usable_bytes > 0) worker.memory_bytes = std::min(capacity.usable_bytes, kMostBytes - 1);
    // Relative speeds alone compare workers, but not computing with sending.
    if (input.flops_per_second > 0 || !links) {
      worker.flops_per_second =
          capacity.relative_speed * (input.flops_per_second > 0 ? input.flops_per_second : 1);
    }
    question.workers.push_back(worker);
  }
  return question;
}

class PlacedScheme : public MaskScheme {
 public:
  Scheme scheme() const override { return Scheme::kPlaced; }
  absl::string_view name() const override { return "placed"; }

  absl::StatusOr<Assignment> Assign(const SchemeInput& input) const override {
    TESSERA_ASSIGN_OR_RETURN(PlacementAnswer answer, Place(Question(input)));
    if (answer.placement) return std::move(answer.placement->holders);
    const Infeasibility& why = *answer.infeasibility;
    if (why.constraint == Constraint::kMinGap) return absl::InvalidArgumentError(why.message);
    return absl::ResourceExhaustedError(
        absl::StrCat(why.message, "; in all, ", why.missing_bytes, " bytes are missing"));
  }
};

TESSERA_REGISTER_MASK_SCHEME(PlacedScheme);

}  // namespace
}  // namespace tessera::plan

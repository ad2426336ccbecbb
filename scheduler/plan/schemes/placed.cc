// placed: for workers that differ in memory, speed or link. The slowest finishes as early as can be, and
// nobody holds more than fits (placement.h).
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/plan/placement_question.h"

namespace tessera::plan {
namespace {

class PlacedScheme : public MaskScheme {
 public:
  Scheme scheme() const override { return Scheme::kPlaced; }
  absl::string_view name() const override { return "placed"; }

  absl::StatusOr<Assignment> Assign(const SchemeInput& input) const override {
    TESSERA_ASSIGN_OR_RETURN(PlacementAnswer answer, Place(PlacementQuestion(input)));
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

// full: every worker holds every unit, which is plain data parallelism.
#include <numeric>

#include "absl/status/status.h"
#include "scheduler/plan/mask_scheme.h"

namespace tessera::plan {
namespace {

class FullScheme : public MaskScheme {
 public:
  Scheme scheme() const override { return Scheme::kFull; }
  absl::string_view name() const override { return "full"; }
  absl::StatusOr<Assignment> Assign(const SchemeInput& input) const override {
    for (int holders : input.holders) {
      if (holders != input.workers) {
        return absl::InvalidArgumentError("coverage: must be 1 with scheme 'full'; other schemes take less");
      }
    }
    std::vector<int> everyone(input.workers);
    std::iota(everyone.begin(), everyone.end(), 0);
    return Assignment(input.units(), everyone);
  }
};

TESSERA_REGISTER_MASK_SCHEME(FullScheme);

}  // namespace
}  // namespace tessera::plan

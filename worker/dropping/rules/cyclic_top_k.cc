// cyclic_top_k: the holders take turns in picking their own largest residuals for all (ScaleCom, Chen et al.,
// NeurIPS 2020, section 2). Picked before backward from what is left of the steps before, so that the picks
// travel while forward goes on.
#include <cmath>

#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/float_view.h"
#include "worker/dropping/top_k.h"

namespace tessera::worker {
namespace {

class CyclicTopK final : public DroppingRule {
 public:
  absl::string_view name() const override { return "cyclic_top_k"; }
  RuleNeeds needs() const override {
    return {.residual = true,
            .agreement = RuleAgreement::kTurn,
            .default_share = 1,
            .importance = kernels::Importance::kResidual};
  }
  void Pick(const RuleInput& input, absl::Span<uint64_t> words) const override {
    WithValues(input.residual, [&](const auto& value) {
      MarkLargest(
          input.elements, input.picks, [value](int64_t i) { return KeyOf(std::fabs(value(i))); }, words);
    });
  }
};

TESSERA_REGISTER_DROPPING_RULE(CyclicTopK);

}  // namespace
}  // namespace tessera::worker

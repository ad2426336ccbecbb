// magnitude: local top-k, each holder its own largest residuals. They travel with their indices, which costs
// more than dense gradients from a few workers on.
#include <cmath>

#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/float_view.h"
#include "worker/dropping/top_k.h"

namespace tessera::worker {
namespace {

class Magnitude final : public DroppingRule {
 public:
  absl::string_view name() const override { return "magnitude"; }
  RuleNeeds needs() const override {
    return {.residual = true, .agreement = RuleAgreement::kNone, .default_share = 1};
  }
  void Pick(const RuleInput& input, absl::Span<uint64_t> words) const override {
    WithValues(input.residual, [&](const auto& value) {
      MarkLargest(
          input.elements, input.picks, [&](int64_t i) { return KeyOf(std::fabs(value(i))); }, words);
    });
  }
};

TESSERA_REGISTER_DROPPING_RULE(Magnitude);

}  // namespace
}  // namespace tessera::worker

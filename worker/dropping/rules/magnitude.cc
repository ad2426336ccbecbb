// magnitude: local top-k, each holder its own largest gradients, with what is left from earlier steps. They
// travel with their indices, which costs more than dense gradients from a few workers on.
#include <cmath>

#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/float_view.h"
#include "worker/dropping/top_k.h"

namespace tessera::worker {
namespace {

class Magnitude final : public DroppingRule {
 public:
  absl::string_view name() const override { return "magnitude"; }
  RuleNeeds needs() const override { return {.agreement = RuleAgreement::kNone, .default_share = 1}; }
  void Pick(const RuleInput& input, absl::Span<uint64_t> words) const override {
    const auto mark = [&](const auto& value) {
      MarkLargest(
          input.elements, input.picks, [value](int64_t i) { return KeyOf(std::fabs(value(i))); }, words);
    };
    const float* const gradient = input.gradient;
    if (input.residual.empty()) {
      if (gradient == nullptr) return mark([](int64_t) { return 0.0f; });
      return mark([gradient](int64_t i) { return gradient[i]; });
    }
    WithValues(input.residual, [&](const auto& left) {
      if (gradient == nullptr) return mark(left);
      mark([left, gradient](int64_t i) { return left(i) + gradient[i]; });
    });
  }
};

TESSERA_REGISTER_DROPPING_RULE(Magnitude);

}  // namespace
}  // namespace tessera::worker

// momentum_ratio: elements whose gradients agree in sign, by |m| / sqrt(v); its square has the same order.
#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/top_k.h"

namespace tessera::worker {
namespace {

class MomentumRatio final : public DroppingRule {
 public:
  absl::string_view name() const override { return "momentum_ratio"; }
  RuleNeeds needs() const override {
    return {.first_moment = true,
            .second_moment = true,
            .default_share = 0.5,
            .importance = kernels::Importance::kMomentumRatio};
  }
  void Pick(const RuleInput& input, absl::Span<uint64_t> words) const override {
    MarkLargest(
        input.elements, input.picks,
        [m = input.first_moment, v = input.second_moment](int64_t i) {
          const float ratio = m[i] * m[i] / v[i];  // without a branch
          return v[i] > 0 ? KeyOf(ratio) : 0;
        },
        words);
  }
};

TESSERA_REGISTER_DROPPING_RULE(MomentumRatio);

}  // namespace
}  // namespace tessera::worker

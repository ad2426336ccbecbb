// second_moment: elements whose gradients have been large, by the running mean of their squares.
#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/top_k.h"

namespace tessera::worker {
namespace {

class SecondMoment final : public DroppingRule {
 public:
  absl::string_view name() const override { return "second_moment"; }
  RuleNeeds needs() const override {
    return {.second_moment = true, .default_share = 0.5, .importance = kernels::Importance::kSecondMoment};
  }
  void Pick(const RuleInput& input, absl::Span<uint64_t> words) const override {
    MarkLargest(
        input.elements, input.picks, [v = input.second_moment](int64_t i) { return KeyOf(v[i]); }, words);
  }
};

TESSERA_REGISTER_DROPPING_RULE(SecondMoment);

}  // namespace
}  // namespace tessera::worker

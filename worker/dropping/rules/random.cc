// random: drawn anew each step, the same on all holders.
#include "base/split_mix.h"
#include "scheduler/plan/counter_random.h"
#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/top_k.h"

namespace tessera::worker {
namespace {

class Random final : public DroppingRule {
 public:
  absl::string_view name() const override { return "random"; }
  RuleNeeds needs() const override { return {.default_share = 1}; }
  void Pick(const RuleInput& input, absl::Span<uint64_t> words) const override {
    const uint64_t draw = plan::CounterRandom(input.seed, static_cast<uint64_t>(input.tensor),
                                              static_cast<uint64_t>(input.step));
    MarkLargest(
        input.elements, input.picks,
        [draw](int64_t i) {
          return static_cast<uint32_t>(SplitMix64(draw ^ static_cast<uint64_t>(i)) >> 32);
        },
        words);
  }
};

TESSERA_REGISTER_DROPPING_RULE(Random);

}  // namespace
}  // namespace tessera::worker

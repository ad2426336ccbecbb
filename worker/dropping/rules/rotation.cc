// rotation: no element is more important than another, all take turns.
#include <algorithm>

#include "worker/dropping/dropping_rule.h"

namespace tessera::worker {
namespace {

class Rotating final : public DroppingRule {
 public:
  absl::string_view name() const override { return "rotation"; }
  RuleNeeds needs() const override { return {}; }
  void Pick(const RuleInput& /*input*/, absl::Span<uint64_t> words) const override {
    std::fill(words.begin(), words.end(), 0);
  }
};

TESSERA_REGISTER_DROPPING_RULE(Rotating);

}  // namespace
}  // namespace tessera::worker

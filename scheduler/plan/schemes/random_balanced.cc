// random_balanced: units in random order, each to the workers that lack most load,
// ties drawn by lot. Draws whose mask graph mixes worse than min_gap are rejected.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/plan/counter_random.h"
#include "scheduler/plan/deal.h"
#include "scheduler/plan/mask_graph.h"
#include "scheduler/plan/mask_scheme.h"

namespace tessera::plan {
namespace {

constexpr int kDraws = 64;
constexpr uint64_t kOrderStream = 0x6f72646572ULL;  // keeps the order's numbers apart from the ties'

std::vector<int> RandomOrder(int units, uint64_t seed, uint64_t draw) {
  std::vector<int> order(units);
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int unit) {
    return std::make_tuple(CounterRandom(seed ^ kOrderStream, draw, unit), unit);
  };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  return order;
}

class RandomBalancedScheme : public MaskScheme {
 public:
  Scheme scheme() const override { return Scheme::kRandomBalanced; }
  absl::string_view name() const override { return "random_balanced"; }

  absl::StatusOr<Assignment> Assign(const SchemeInput& input) const override {
    Assignment best;
    double best_gap = -1;
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      Assignment assignment = Deal(input, RandomOrder(input.units(), input.seed, draw), input.loads, draw);
      const double gap = SpectralGap(input.workers, assignment);
      if (gap > best_gap) {
        best_gap = gap;
        best = std::move(assignment);
      }
      if (MixesWell(input, gap)) break;
    }
    return best;
  }
};

TESSERA_REGISTER_MASK_SCHEME(RandomBalancedScheme);

}  // namespace
}  // namespace tessera::plan

// size_aware: for unequal blocks and unequal workers. Greedy from the largest unit
// to the smallest, then moves and swaps between pairs of workers while they help
// (exchange.h), then, if min_gap asks for it, exchanges that mix better.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "scheduler/plan/deal.h"
#include "scheduler/plan/exchange.h"
#include "scheduler/plan/mask_graph.h"
#include "scheduler/plan/mask_scheme.h"

namespace tessera::plan {
namespace {

constexpr int kDraws = 32;

class SizeAwareScheme : public MaskScheme {
 public:
  Scheme scheme() const override { return Scheme::kSizeAware; }
  absl::string_view name() const override { return "size_aware"; }

  absl::StatusOr<Assignment> Assign(const SchemeInput& input) const override {
    std::vector<int> order(input.units());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return input.elements[a] > input.elements[b]; });
    const std::vector<double> weights(input.elements.begin(), input.elements.end());

    Assignment best;
    double best_gap = -1;
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      Assignment assignment = BalanceByExchange(input, Deal(input, order, weights, draw));
      const double gap = SpectralGap(input.workers, assignment);
      if (gap > best_gap) {
        best_gap = gap;
        best = std::move(assignment);
      }
      if (MixesWell(input, gap)) break;
    }
    if (best_gap < input.min_gap) return MixByExchange(input, best);
    return best;
  }
};

TESSERA_REGISTER_MASK_SCHEME(SizeAwareScheme);

}  // namespace
}  // namespace tessera::plan

// size_aware: for unequal blocks and unequal workers. Greedy from the largest unit
// to the smallest, then moves and swaps between pairs of workers while they help.
//
// Elements are balanced first and FLOPs second: where the two disagree (the late blocks of
// a ResNet hold most parameters and cost no more FLOPs than the early ones) an
// uneven division of elements decides whether a worker fits at all.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "scheduler/plan/deal.h"
#include "scheduler/plan/mask_graph.h"
#include "scheduler/plan/mask_scheme.h"

namespace tessera::plan {
namespace {

constexpr int kDraws = 32;
constexpr double kFlopsWeight = 1e-3;
constexpr double kOverflowWeight = 1e3;
constexpr int64_t kMostTrials = 4'000'000;  // bounds the time of one draw

class Exchange {
 public:
  Exchange(const SchemeInput& input, const Assignment& assignment)
      : input_(input),
        holds_(input.workers, std::vector<char>(input.units(), 0)),
        elements_(input.workers, 0.0),
        loads_(input.workers, 0.0) {
    for (int u = 0; u < input.units(); ++u) {
      total_elements_ += static_cast<double>(input.elements[u]) * input.holders[u];
      total_load_ += input.loads[u] * input.holders[u];
      for (int w : assignment[u]) Put(w, u, true);
    }
  }

  Assignment Run() {
    bool improved = true;
    while (improved && trials_ < kMostTrials) {
      improved = false;
      for (int a = 0; a < input_.workers; ++a) {
        for (int b = 0; b < input_.workers; ++b) {
          while (a != b && trials_ < kMostTrials && ImprovePair(a, b)) improved = true;
        }
      }
    }
    Assignment assignment(input_.units());
    for (int w = 0; w < input_.workers; ++w) {
      for (int u = 0; u < input_.units(); ++u) {
        if (holds_[w][u]) assignment[u].push_back(w);
      }
    }
    return assignment;
  }

 private:
  static constexpr int kNothing = -1;

  void Put(int worker, int unit, bool hold) {
    holds_[worker][unit] = hold;
    const double sign = hold ? 1 : -1;
    elements_[worker] += sign * static_cast<double>(input_.elements[unit]);
    loads_[worker] += sign * input_.loads[unit];
  }

  // Squared distance of a worker from its share, in units of the mean worker.
  double Cost(int worker, double elements, double load) const {
    const double mean_elements = std::max(1.0, total_elements_ / input_.workers);
    const double mean_load = std::max(1.0, total_load_ / input_.workers);
    const double off_elements = (elements - input_.shares[worker] * total_elements_) / mean_elements;
    const double off_load = (load - input_.shares[worker] * total_load_) / mean_load;
    const double overflow =
        std::max(0.0, elements - static_cast<double>(input_.limits[worker])) / mean_elements;
    return off_elements * off_elements + kFlopsWeight * off_load * off_load +
           kOverflowWeight * (overflow * overflow + overflow);
  }

  // Change of cost when `give` goes from a to b and `take` from b to a.
  double Change(int a, int b, int give, int take) const {
    double elements = static_cast<double>(input_.elements[give]);
    double load = input_.loads[give];
    if (take != kNothing) {
      elements -= static_cast<double>(input_.elements[take]);
      load -= input_.loads[take];
    }
    return Cost(a, elements_[a] - elements, loads_[a] - load) +
           Cost(b, elements_[b] + elements, loads_[b] + load) - Cost(a, elements_[a], loads_[a]) -
           Cost(b, elements_[b], loads_[b]);
  }

  // Makes the best move or swap between two workers; false when none helps.
  bool ImprovePair(int a, int b) {
    double best = -1e-9;  // below the noise of the arithmetic
    int best_give = kNothing;
    int best_take = kNothing;
    for (int give = 0; give < input_.units(); ++give) {
      if (!holds_[a][give] || holds_[b][give]) continue;
      for (int take = kNothing; take < input_.units(); ++take) {
        if (take != kNothing && (!holds_[b][take] || holds_[a][take])) continue;
        ++trials_;
        const double change = Change(a, b, give, take);
        if (change >= best) continue;
        best = change;
        best_give = give;
        best_take = take;
      }
    }
    if (best_give == kNothing) return false;
    Put(a, best_give, false);
    Put(b, best_give, true);
    if (best_take != kNothing) {
      Put(b, best_take, false);
      Put(a, best_take, true);
    }
    return true;
  }

  const SchemeInput& input_;
  std::vector<std::vector<char>> holds_;  // [worker][unit]
  std::vector<double> elements_;
  std::vector<double> loads_;
  double total_elements_ = 0;
  double total_load_ = 0;
  int64_t trials_ = 0;
};

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
      Assignment assignment = Exchange(input, Deal(input, order, weights, draw)).Run();
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

TESSERA_REGISTER_MASK_SCHEME(SizeAwareScheme);

}  // namespace
}  // namespace tessera::plan

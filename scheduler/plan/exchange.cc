#include "scheduler/plan/exchange.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/plan/mask_graph.h"

namespace tessera::plan {
namespace {

constexpr double kLoadWeight = 1e-3;
constexpr double kOverflowWeight = 1e3;
constexpr double kNoise = 1e-9;             // of the arithmetic, in units of the cost
constexpr int64_t kMostTrials = 4'000'000;  // of balancing; bounds its time to about a second
constexpr double kMixOperations = 2e9;      // the same for mixing, where a trial is an eigenvalue problem
constexpr double kOperationsPerEntry = 40;  // of Jacobi: about ten sweeps of four

constexpr int kNothing = -1;

// `give` goes from worker a to b and `take`, if any, from b to a.
struct Trade {
  int a = 0;
  int b = 0;
  int give = kNothing;
  int take = kNothing;
};

class Exchange {
 public:
  Exchange(const SchemeInput& input, const Assignment& assignment)
      : input_(input),
        holds_(input.workers, std::vector<char>(input.units(), 0)),
        elements_(input.workers, 0.0),
        loads_(input.workers, 0.0) {
    double elements = 0;
    double load = 0;
    for (int u = 0; u < input.units(); ++u) {
      elements += static_cast<double>(input.elements[u]) * input.holders[u];
      load += input.loads[u] * input.holders[u];
      for (int w : assignment[u]) Put(w, u, true);
    }
    mean_elements_ = std::max(1.0, elements / input.workers);
    mean_load_ = std::max(1.0, load / input.workers);
  }

  Assignment assignment() const {
    Assignment assignment(input_.units());
    for (int w = 0; w < input_.workers; ++w) {
      for (int u = 0; u < input_.units(); ++u) {
        if (holds_[w][u]) assignment[u].push_back(w);
      }
    }
    return assignment;
  }

  // Calls visit(trade) for every trade that workers a and b can make.
  template <typename Visit>
  void ForEachTrade(int a, int b, Visit visit) const {
    for (int give = 0; give < input_.units(); ++give) {
      if (!holds_[a][give] || holds_[b][give]) continue;
      for (int take = kNothing; take < input_.units(); ++take) {
        if (take != kNothing && (!holds_[b][take] || holds_[a][take])) continue;
        visit(Trade{a, b, give, take});
      }
    }
  }

  void Make(const Trade& trade) {
    Put(trade.a, trade.give, false);
    Put(trade.b, trade.give, true);
    if (trade.take == kNothing) return;
    Put(trade.b, trade.take, false);
    Put(trade.a, trade.take, true);
  }

  void Undo(const Trade& trade) {
    Put(trade.b, trade.give, false);
    Put(trade.a, trade.give, true);
    if (trade.take == kNothing) return;
    Put(trade.a, trade.take, false);
    Put(trade.b, trade.take, true);
  }

  // What the trade adds to the cost.
  double Change(const Trade& t) const {
    double elements = static_cast<double>(input_.elements[t.give]);
    double load = input_.loads[t.give];
    if (t.take != kNothing) {
      elements -= static_cast<double>(input_.elements[t.take]);
      load -= input_.loads[t.take];
    }
    return Cost(t.a, elements_[t.a] - elements, loads_[t.a] - load) +
           Cost(t.b, elements_[t.b] + elements, loads_[t.b] + load) - Cost(t.a, elements_[t.a], loads_[t.a]) -
           Cost(t.b, elements_[t.b], loads_[t.b]);
  }

  bool Overflows(int worker) const { return elements_[worker] > static_cast<double>(input_.limits[worker]); }

 private:
  void Put(int worker, int unit, bool hold) {
    holds_[worker][unit] = hold;
    const double sign = hold ? 1 : -1;
    elements_[worker] += sign * static_cast<double>(input_.elements[unit]);
    loads_[worker] += sign * input_.loads[unit];
  }

  // Squared distance of a worker from its share, in units of the mean worker.
  double Cost(int worker, double elements, double load) const {
    const double share = input_.shares[worker] * input_.workers;
    const double off_elements = elements / mean_elements_ - share;
    const double off_load = load / mean_load_ - share;
    const double overflow =
        std::max(0.0, elements - static_cast<double>(input_.limits[worker])) / mean_elements_;
    return off_elements * off_elements + kLoadWeight * off_load * off_load +
           kOverflowWeight * (overflow * overflow + overflow);
  }

  const SchemeInput& input_;
  std::vector<std::vector<char>> holds_;  // [worker][unit]
  std::vector<double> elements_;
  std::vector<double> loads_;
  double mean_elements_ = 1;
  double mean_load_ = 1;
};

}  // namespace

Assignment BalanceByExchange(const SchemeInput& input, const Assignment& assignment) {
  Exchange exchange(input, assignment);
  int64_t trials = 0;
  // The best trade of a pair, made; false when none helps.
  const auto improve = [&](int a, int b) {
    std::optional<Trade> best;
    double best_change = -kNoise;
    exchange.ForEachTrade(a, b, [&](const Trade& trade) {
      ++trials;
      const double change = exchange.Change(trade);
      if (change >= best_change) return;
      best_change = change;
      best = trade;
    });
    if (best) exchange.Make(*best);
    return best.has_value();
  };
  bool improved = true;
  while (improved && trials < kMostTrials) {
    improved = false;
    for (int a = 0; a < input.workers; ++a) {
      for (int b = 0; b < input.workers; ++b) {
        while (a != b && trials < kMostTrials && improve(a, b)) improved = true;
      }
    }
  }
  return exchange.assignment();
}

Assignment MixByExchange(const SchemeInput& input, const Assignment& assignment) {
  Exchange exchange(input, assignment);
  const double n = std::min(input.workers, input.units());
  double budget = kMixOperations;
  double gap = SpectralGap(input.workers, assignment);
  while (gap < input.min_gap && budget > 0) {
    std::optional<Trade> best;
    double best_value = 0;
    const auto consider = [&](const Trade& trade) {
      if (budget <= 0) return;
      budget -= kOperationsPerEntry * n * n * n;
      const double change = exchange.Change(trade);
      exchange.Make(trade);
      const bool fits = !exchange.Overflows(trade.a) && !exchange.Overflows(trade.b);
      const double gain = fits ? SpectralGap(input.workers, exchange.assignment()) - gap : 0;
      exchange.Undo(trade);
      const double value = gain / std::max(change, kNoise);
      if (gain < kNoise || value <= best_value) return;
      best_value = value;
      best = trade;
    };
    for (int a = 0; a < input.workers; ++a) {
      for (int b = 0; b < input.workers; ++b) {
        if (a != b) exchange.ForEachTrade(a, b, consider);
      }
    }
    if (!best) break;
    exchange.Make(*best);
    gap = SpectralGap(input.workers, exchange.assignment());
  }
  return exchange.assignment();
}

}  // namespace tessera::plan

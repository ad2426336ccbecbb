#include "scheduler/plan/deal.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "scheduler/plan/counter_random.h"

namespace tessera::plan {
namespace {

constexpr double kConnected = 1e-6;

class Dealer {
 public:
  Dealer(const SchemeInput& input, absl::Span<const double> weights, uint64_t draw)
      : input_(input), draw_(draw), lack_(input.workers), room_(input.limits) {
    double total = 0;
    for (int u = 0; u < input.units(); ++u) total += weights[u] * input.holders[u];
    for (int w = 0; w < input.workers; ++w) lack_[w] = input.shares[w] * total;
  }

  std::vector<int> Give(int unit, double weight) {
    std::vector<int> holders = Neediest(unit);
    const int used = Reusable(unit, holders);
    if (used >= 0) {
      holders = sets_[used].holders;
      ++sets_[used].uses;
    } else if (!CountUse(holders)) {
      sets_.push_back({holders, 1});
    }
    for (int w : holders) {
      lack_[w] -= weight;
      room_[w] -= input_.elements[unit];
    }
    return holders;
  }

 private:
  struct HolderSet {
    std::vector<int> holders;
    int uses = 0;
  };

  bool Fits(int worker, int unit) const { return room_[worker] >= input_.elements[unit]; }

  std::vector<int> Neediest(int unit) const {
    std::vector<int> order(input_.workers);
    std::vector<uint64_t> tie(input_.workers);
    std::iota(order.begin(), order.end(), 0);
    for (int w : order) tie[w] = CounterRandom(input_.seed, draw_, unit, w);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      if (Fits(a, unit) != Fits(b, unit)) return Fits(a, unit);
      if (lack_[a] != lack_[b]) return lack_[a] > lack_[b];
      return tie[a] != tie[b] ? tie[a] < tie[b] : a < b;
    });
    order.resize(input_.holders[unit]);
    std::sort(order.begin(), order.end());
    return order;
  }

  double Lack(const std::vector<int>& workers) const {
    double sum = 0;
    for (int w : workers) sum += lack_[w];
    return sum;
  }

  // The least used set as good as `fresh`, or -1.
  int Reusable(int unit, const std::vector<int>& fresh) const {
    if (static_cast<int>(sets_.size()) < input_.workers) return -1;
    const double want = Lack(fresh);
    const double slack = 1e-12 * std::abs(want);
    int best = -1;
    for (size_t s = 0; s < sets_.size(); ++s) {
      const std::vector<int>& holders = sets_[s].holders;
      if (holders.size() != fresh.size() || Lack(holders) < want - slack) continue;
      if (!std::all_of(holders.begin(), holders.end(), [&](int w) { return Fits(w, unit); })) continue;
      if (best < 0 || sets_[s].uses < sets_[best].uses) best = static_cast<int>(s);
    }
    return best;
  }

  bool CountUse(const std::vector<int>& holders) {
    for (HolderSet& set : sets_) {
      if (set.holders != holders) continue;
      ++set.uses;
      return true;
    }
    return false;
  }

  const SchemeInput& input_;
  const uint64_t draw_;
  std::vector<double> lack_;
  std::vector<int64_t> room_;
  std::vector<HolderSet> sets_;
};

}  // namespace

Assignment Deal(const SchemeInput& input, absl::Span<const int> order, absl::Span<const double> weights,
                uint64_t draw) {
  Dealer dealer(input, weights, draw);
  Assignment assignment(input.units());
  for (int unit : order) assignment[unit] = dealer.Give(unit, weights[unit]);
  return assignment;
}

bool MixesWell(const SchemeInput& input, double gap) {
  // Connecting N workers takes N - 1 joins; a unit with r holders makes r - 1.
  int joins = 0;
  for (int holders : input.holders) joins += holders - 1;
  const double least = joins >= input.workers - 1 ? kConnected : 0;
  return gap >= std::max(least, input.min_gap);
}

}  // namespace tessera::plan

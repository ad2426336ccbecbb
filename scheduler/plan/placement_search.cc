#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "scheduler/plan/mask_graph.h"
#include "scheduler/plan/placement_instance.h"

namespace tessera::plan {
namespace {

constexpr int kPartners = 32;  // workers that the slowest trades with, those with the most time left
constexpr int kNothing = -1;

struct Trade {
  int from = 0;
  int to = 0;
  int give = kNothing;
  int take = kNothing;
};

void Make(Holding& holding, const Trade& t) {
  holding.Put(t.from, t.give, false);
  holding.Put(t.to, t.give, true);
  if (t.take == kNothing) return;
  holding.Put(t.to, t.take, false);
  holding.Put(t.from, t.take, true);
}

void Undo(Holding& holding, const Trade& t) { Make(holding, {t.to, t.from, t.give, t.take}); }

struct After {  // a trade
  int64_t overflow = 0;
  double seconds = 0;  // the slower of the two
};

After Try(const Holding& holding, const Trade& t) {
  const PlacementInstance& in = holding.instance();
  double from_seconds = holding.seconds(t.from) - in.Seconds(t.from, t.give);
  double to_seconds = holding.seconds(t.to) + in.Seconds(t.to, t.give);
  int64_t from_free = holding.free(t.from) + in.Bytes(t.from, t.give);
  int64_t to_free = holding.free(t.to) - in.Bytes(t.to, t.give);
  if (t.take != kNothing) {
    from_seconds += in.Seconds(t.from, t.take);
    to_seconds -= in.Seconds(t.to, t.take);
    from_free -= in.Bytes(t.from, t.take);
    to_free += in.Bytes(t.to, t.take);
  }
  return {std::max<int64_t>(0, -from_free) + std::max<int64_t>(0, -to_free),
          std::max(from_seconds, to_seconds)};
}

// Partners of `from`: all others, or of many those who are done first.
std::vector<int> Partners(const Holding& holding, int from) {
  std::vector<int> partners;
  for (int w = 0; w < holding.instance().workers; ++w) {
    if (w != from) partners.push_back(w);
  }
  if (partners.size() <= kPartners) return partners;
  std::nth_element(partners.begin(), partners.begin() + kPartners, partners.end(), [&](int a, int b) {
    return std::pair(holding.seconds(a), a) < std::pair(holding.seconds(b), b);
  });
  partners.resize(kPartners);
  std::sort(partners.begin(), partners.end());
  return partners;
}

// Of all trades of `from`, the one that leaves least overflow, then the least time; none if that is no
// better than now.
std::optional<Trade> BestTrade(const Holding& holding, int from, int64_t& trials) {
  const PlacementInstance& in = holding.instance();
  std::optional<Trade> best;
  double best_gain = 0;
  for (int to : Partners(holding, from)) {
    const int64_t overflow =
        std::max<int64_t>(0, -holding.free(from)) + std::max<int64_t>(0, -holding.free(to));
    const double slower = std::max(holding.seconds(from), holding.seconds(to));
    for (int give = 0; give < in.bundles(); ++give) {
      if (!holding.Has(from, give) || holding.Has(to, give)) continue;
      for (int take = kNothing; take < in.bundles(); ++take) {
        if (take != kNothing && (!holding.Has(to, take) || holding.Has(from, take))) continue;
        if (--trials < 0) return best;
        const After after = Try(holding, {from, to, give, take});
        if (after.overflow > overflow) continue;
        // Overflow counts before any time: a byte of it more than all seconds there are.
        const double gain = after.overflow < overflow ? 1e6 * static_cast<double>(overflow - after.overflow)
                                                      : (slower - after.seconds) / std::max(slower, 1e-300);
        if (overflow > 0 && after.overflow == overflow) continue;
        if (gain <= best_gain + 1e-12) continue;
        best_gain = gain;
        best = Trade{from, to, give, take};
      }
    }
  }
  return best;
}

int WorstWorker(const Holding& holding) {
  int worst = 0;
  const auto cost = [&](int w) {
    return std::pair(std::max<int64_t>(0, -holding.free(w)), holding.seconds(w));
  };
  for (int w = 1; w < holding.instance().workers; ++w) {
    if (cost(w) > cost(worst)) worst = w;
  }
  return worst;
}

class ExactSearcher {
 public:
  ExactSearcher(const PlacementInstance& in, double best_seconds, int64_t most_nodes)
      : in_(in), best_seconds_(best_seconds), nodes_(most_nodes), holding_(in), order_(in.bundles()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return in.length[a] > in.length[b]; });
  }

  ExactSearch Run() {
    ExactSearch result;
    result.complete = Visit(0, 0, 0);
    result.best = std::move(best_);
    return result;
  }

 private:
  // Gives the copies of bundle order_[depth] from worker `first` on; false: out of nodes.
  bool Visit(int depth, int first, int given) {
    if (--nodes_ < 0) return false;
    if (depth == in_.bundles()) {
      if (holding_.Slowest() < best_seconds_ && (in_.min_gap <= 0 || holding_.Gap() >= in_.min_gap)) {
        best_seconds_ = holding_.Slowest();
        best_ = holding_;
      }
      return true;
    }
    const int bundle = order_[depth];
    if (given == in_.holders[bundle]) return Visit(depth + 1, 0, 0);
    for (int w = first; w <= in_.workers - (in_.holders[bundle] - given); ++w) {
      if (in_.Bytes(w, bundle) > holding_.free(w)) continue;
      if (!(holding_.seconds(w) + in_.Seconds(w, bundle) < best_seconds_)) continue;
      holding_.Put(w, bundle, true);
      const bool complete = Visit(depth, w + 1, given + 1);
      holding_.Put(w, bundle, false);
      if (!complete) return false;
    }
    return true;
  }

  const PlacementInstance& in_;
  double best_seconds_;
  int64_t nodes_;
  Holding holding_;
  std::vector<int> order_;
  std::optional<Holding> best_;
};

}  // namespace

Holding::Holding(const PlacementInstance& instance)
    : instance_(&instance),
      holds_(static_cast<size_t>(instance.workers) * instance.bundles(), 0),
      seconds_(instance.fixed_seconds),
      free_(instance.room) {}

void Holding::Put(int worker, int bundle, bool hold) {
  holds_[Index(worker, bundle)] = hold ? 1 : 0;
  const double sign = hold ? 1 : -1;
  seconds_[worker] += sign * instance_->Seconds(worker, bundle);
  free_[worker] -= (hold ? 1 : -1) * instance_->Bytes(worker, bundle);
}

int64_t Holding::Overflow() const {
  int64_t overflow = 0;
  for (int64_t free : free_) overflow += std::max<int64_t>(0, -free);
  return overflow;
}

double Holding::Slowest() const { return *std::max_element(seconds_.begin(), seconds_.end()); }

std::vector<std::vector<int>> Holding::Holders() const {
  std::vector<std::vector<int>> holders(instance_->bundles());
  for (int w = 0; w < instance_->workers; ++w) {
    for (int b = 0; b < instance_->bundles(); ++b) {
      if (Has(w, b)) holders[b].push_back(w);
    }
  }
  return holders;
}

double Holding::Gap() const {
  std::vector<int> weights;
  for (const std::vector<int>& members : instance_->members)
    weights.push_back(static_cast<int>(members.size()));
  return SpectralGap(instance_->workers, Holders(), weights);
}

int Holding::HolderSets() const {
  std::set<std::vector<int>> sets;
  for (std::vector<int>& holders : Holders()) {
    if (holders.size() > 1) sets.insert(std::move(holders));
  }
  return static_cast<int>(sets.size());
}

void Improve(Holding& holding, int64_t trials) {
  while (trials > 0) {
    const std::optional<Trade> trade = BestTrade(holding, WorstWorker(holding), trials);
    if (!trade) return;
    Make(holding, *trade);
  }
}

void Mix(Holding& holding, double most_seconds, int64_t trials) {
  const PlacementInstance& in = holding.instance();
  double gap = holding.Gap();
  bool improved = true;
  while (improved && gap < in.min_gap) {
    improved = false;
    for (int from = 0; from < in.workers; ++from) {
      for (int to = 0; to < in.workers; ++to) {
        for (int give = 0; give < in.bundles(); ++give) {
          if (from == to || !holding.Has(from, give) || holding.Has(to, give)) continue;
          for (int take = kNothing; take < in.bundles(); ++take) {
            if (take != kNothing && (!holding.Has(to, take) || holding.Has(from, take))) continue;
            const Trade trade{from, to, give, take};
            const After after = Try(holding, trade);
            if (after.overflow > 0 || after.seconds > most_seconds) continue;
            if (--trials < 0) return;
            Make(holding, trade);
            const double mixed = holding.Gap();
            if (mixed <= gap + 1e-9) {
              Undo(holding, trade);
              continue;
            }
            gap = mixed;
            improved = true;
            if (gap >= in.min_gap) return;
            break;
          }
          if (!holding.Has(from, give)) continue;
        }
      }
    }
  }
}

ExactSearch SearchExactly(const PlacementInstance& instance, double best_seconds, int64_t most_nodes) {
  return ExactSearcher(instance, best_seconds, most_nodes).Run();
}

}  // namespace tessera::plan

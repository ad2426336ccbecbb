#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "scheduler/plan/bisection.h"
#include "scheduler/plan/counter_random.h"
#include "scheduler/plan/placement_instance.h"

namespace tessera::plan {
namespace {

constexpr double kSlack = 1e-9;

struct WholeSet {  // of all bundles, on one worker
  double seconds = 0;
  int64_t bytes = 0;
};

std::vector<WholeSet> WholeSets(const PlacementInstance& in) {
  const double flops = std::accumulate(in.flops.begin(), in.flops.end(), 0.0);
  const double traffic = std::accumulate(in.traffic.begin(), in.traffic.end(), 0.0);
  const int64_t bytes = std::accumulate(in.bytes.begin(), in.bytes.end(), int64_t{0});
  const int64_t per_sample =
      std::accumulate(in.bytes_per_sample.begin(), in.bytes_per_sample.end(), int64_t{0});
  std::vector<WholeSet> whole(in.workers);
  for (int w = 0; w < in.workers; ++w) {
    whole[w] = {flops * in.seconds_per_flop[w] + traffic * in.seconds_per_byte[w],
                bytes + in.samples[w] * per_sample};
  }
  return whole;
}

std::vector<int> Tour(const PlacementInstance& in) {
  if (!in.tour.empty()) return in.tour;
  std::vector<int> tour(in.workers);
  std::iota(tour.begin(), tour.end(), 0);
  return tour;
}

// The order in which workers take pieces: neighbours in the tour take the same piece of successive
// rounds, so that they share holders.
std::vector<int> TakingOrder(const PlacementInstance& in, double rounds) {
  const std::vector<int> tour = Tour(in);
  const int rows = std::clamp(static_cast<int>(std::lround(rounds)), 1, in.workers);
  std::vector<int> order;
  order.reserve(in.workers);
  for (int row = 0; row < rows; ++row) {
    for (int i = row; i < in.workers; i += rows) order.push_back(tour[i]);
  }
  return order;
}

// Every copy to hand out, round after round.
std::vector<int> Copies(const PlacementInstance& in, double shift, uint64_t shuffle) {
  const int bundles = in.bundles();
  const int rounds = *std::max_element(in.holders.begin(), in.holders.end());
  std::vector<int> copies;
  std::vector<int> ring(bundles);
  for (int round = 0; round < rounds; ++round) {
    const int skipped = static_cast<int>(std::floor(shift * round * bundles + kSlack));
    for (int i = 0; i < bundles; ++i) ring[i] = (i + skipped) % bundles;
    if (shuffle != 0) {
      const auto key = [&](int b) { return std::pair(CounterRandom(in.seed, shuffle, round, b), b); };
      std::sort(ring.begin(), ring.end(), [&](int a, int b) { return key(a) < key(b); });
    }
    for (int b : ring) {
      if (in.holders[b] > round) copies.push_back(b);
    }
  }
  return copies;
}

// To the worker that would be done first among those with room; the least overfull if none has.
void GiveOne(Holding& holding, int bundle) {
  const PlacementInstance& in = holding.instance();
  int best = -1;
  std::pair<int64_t, double> best_cost;
  for (int w = 0; w < in.workers; ++w) {
    if (holding.Has(w, bundle)) continue;
    const std::pair cost{std::max<int64_t>(0, in.Bytes(w, bundle) - holding.free(w)),
                         holding.seconds(w) + in.Seconds(w, bundle)};
    if (best >= 0 && cost >= best_cost) continue;
    best = w;
    best_cost = cost;
  }
  holding.Put(best, bundle, true);
}

}  // namespace

FractionalPlacement PlaceFractions(const PlacementInstance& in) {
  double total = 0;
  for (int b = 0; b < in.bundles(); ++b) total += in.length[b] * in.holders[b];
  const std::vector<WholeSet> whole = WholeSets(in);
  std::vector<double> limits(in.workers);
  for (int w = 0; w < in.workers; ++w) {
    const double room = static_cast<double>(std::max<int64_t>(0, in.room[w]));
    limits[w] = whole[w].bytes > 0 ? std::min(1.0, room / static_cast<double>(whole[w].bytes)) : 1;
  }
  const auto share = [&](int w, double seconds) {
    if (whole[w].seconds <= 0) return limits[w];
    return std::clamp((seconds - in.fixed_seconds[w]) / whole[w].seconds, 0.0, limits[w]);
  };
  double slowest = 0;
  for (int w = 0; w < in.workers; ++w) slowest = std::max(slowest, in.fixed_seconds[w] + whole[w].seconds);
  FractionalPlacement result;
  result.shares.resize(in.workers);
  const Edge edge = Bisect(0, slowest, [&](double seconds) {
    double held = 0;
    for (int w = 0; w < in.workers; ++w) held += share(w, seconds);
    return held >= total;
  });
  result.seconds = edge.from;
  double sum = 0;
  for (int w = 0; w < in.workers; ++w) sum += result.shares[w] = share(w, edge.from);
  for (int w = 0; w < in.workers; ++w) result.seconds = std::max(result.seconds, in.fixed_seconds[w]);
  result.fits = sum >= total * (1 - kSlack);
  return result;
}

Holding LayRing(const PlacementInstance& in, const FractionalPlacement& target, double shift,
                uint64_t shuffle) {
  double rounds = 0;
  for (int b = 0; b < in.bundles(); ++b) rounds += in.length[b] * in.holders[b];
  const std::vector<int> copies = Copies(in, shift, shuffle);
  Holding holding(in);
  std::vector<int> pending;  // skipped by a worker that has them already
  size_t next = 0;
  double owed = 0;  // share that earlier workers left, by rounding to whole bundles
  for (int w : TakingOrder(in, rounds)) {
    owed += target.shares[w];
    const auto take = [&](int b) {
      if (holding.Has(w, b) || in.Bytes(w, b) > holding.free(w)) return false;
      holding.Put(w, b, true);
      owed -= in.length[b];
      return true;
    };
    const auto wants = [&](int b) { return owed > 0 && owed >= in.length[b] / 2 - kSlack; };
    std::vector<int> skipped;
    for (int b : pending) {
      if (!wants(b) || !take(b)) skipped.push_back(b);
    }
    pending = std::move(skipped);
    while (next < copies.size() && wants(copies[next])) {
      const int b = copies[next];
      if (!take(b)) {
        if (!holding.Has(w, b)) break;  // no room: the next worker goes on from here
        pending.push_back(b);
      }
      ++next;
    }
  }
  for (int b : pending) GiveOne(holding, b);
  for (; next < copies.size(); ++next) GiveOne(holding, copies[next]);
  return holding;
}

Holding LayGreedy(const PlacementInstance& in) {
  std::vector<int> order(in.bundles());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return in.length[a] > in.length[b]; });
  Holding holding(in);
  for (int b : order) {
    for (int k = 0; k < in.holders[b]; ++k) GiveOne(holding, b);
  }
  return holding;
}

Holding LayCyclic(const PlacementInstance& in) {
  const std::vector<int> tour = Tour(in);
  Holding holding(in);
  for (int b = 0; b < in.bundles(); ++b) {
    for (int k = 0; k < in.holders[b]; ++k) holding.Put(tour[(b + k) % in.workers], b, true);
  }
  return holding;
}

}  // namespace tessera::plan

#include "scheduler/plan/placement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "scheduler/plan/bisection.h"
#include "scheduler/plan/placement_bounds.h"
#include "scheduler/plan/placement_instance.h"

namespace tessera::plan {
namespace {

constexpr int64_t kTrials = 300'000;     // of the local search, over all starts
constexpr int64_t kExactNodes = 40'000;  // enough for about six bundles on four workers
constexpr int64_t kMixTrials = 2'000;
constexpr double kSameTime = 1e-9;
constexpr double kMixedTimeSlack = 1.1;  // a better-mixed placement may be this much slower
constexpr int kShuffles = 8;

// What a candidate is chosen by.
struct Candidate {
  Holding holding;
  double gap = 0;
};

bool Better(const Candidate& a, const Candidate& b, double min_gap) {
  if (a.holding.Overflow() != b.holding.Overflow()) return a.holding.Overflow() < b.holding.Overflow();
  if ((a.gap >= min_gap) != (b.gap >= min_gap)) return a.gap >= min_gap;
  const double a_seconds = a.holding.Slowest();
  const double b_seconds = b.holding.Slowest();
  if (std::abs(a_seconds - b_seconds) > kSameTime * std::max(a_seconds, b_seconds)) {
    return a_seconds < b_seconds;
  }
  return a.gap > b.gap + kSameTime;
}

std::vector<Holding> Starts(const PlacementInstance& instance, const FractionalPlacement& fractions) {
  std::vector<Holding> starts;
  starts.push_back(LayCyclic(instance));
  starts.push_back(LayRing(instance, fractions, 0, 0));
  starts.push_back(LayRing(instance, fractions, 1.0 / instance.workers, 0));
  if (instance.workers * instance.bundles() > 4096) return starts;
  starts.push_back(LayGreedy(instance));
  for (int i = 1; i <= kShuffles; ++i) starts.push_back(LayRing(instance, fractions, 0, i));
  return starts;
}

struct Solution {
  std::optional<Candidate> best;  // may overflow or miss the gap
  bool exhaustive = false;        // nothing else exists
};

Solution Solve(const PlacementInstance& instance) {
  const FractionalPlacement fractions = PlaceFractions(instance);
  std::vector<Holding> starts = Starts(instance, fractions);
  const int64_t trials = kTrials / static_cast<int64_t>(starts.size());
  Solution solution;
  for (Holding& start : starts) {
    Improve(start, trials);
    Candidate candidate{std::move(start), 0};
    candidate.gap = candidate.holding.Gap();
    if (!solution.best || Better(candidate, *solution.best, instance.min_gap))
      solution.best = std::move(candidate);
  }
  if (solution.best->holding.Overflow() == 0 && solution.best->gap < instance.min_gap) {
    Candidate mixed = *solution.best;
    Mix(mixed.holding, mixed.holding.Slowest() * kMixedTimeSlack, kMixTrials);
    mixed.gap = mixed.holding.Gap();
    if (Better(mixed, *solution.best, instance.min_gap)) solution.best = std::move(mixed);
  }
  const bool served = solution.best->holding.Overflow() == 0 && solution.best->gap >= instance.min_gap;
  if (served && solution.best->holding.Slowest() <= fractions.seconds * (1 + 1e-6)) return solution;
  const double to_beat = served ? solution.best->holding.Slowest() : std::numeric_limits<double>::infinity();
  ExactSearch exact = SearchExactly(instance, to_beat, kExactNodes);
  solution.exhaustive = exact.complete;
  if (exact.best) solution.best = Candidate{*exact.best, exact.best->Gap()};
  return solution;
}

// Samples so that all finish together, each at least one and none beyond its memory.
std::vector<int64_t> BalancedSamples(const PlacementRequest& request, const PlacementInstance& instance,
                                     const Holding& holding) {
  const int workers = instance.workers;
  std::vector<double> rate(workers), fixed(workers);  // seconds per sample, seconds beside them
  std::vector<int64_t> most(workers);
  for (int w = 0; w < workers; ++w) {
    double flops = request.always_on.flops_per_sample;
    int64_t per_sample = request.always_on.bytes_per_sample;
    for (int b = 0; b < instance.bundles(); ++b) {
      if (!holding.Has(w, b)) continue;
      flops += instance.flops[b];
      per_sample += instance.bytes_per_sample[b];
    }
    const double samples = static_cast<double>(instance.samples[w]);
    rate[w] = flops * instance.seconds_per_flop[w] / samples;
    fixed[w] = holding.seconds(w) - rate[w] * samples;
    most[w] = per_sample > 0 ? instance.samples[w] + holding.free(w) / per_sample : request.samples * workers;
  }
  const int64_t total = request.samples * workers;
  const auto samples_in = [&](int w, double seconds) {
    if (rate[w] <= 0) return std::max<int64_t>(1, std::min(most[w], request.samples));
    const double many = std::floor((seconds - fixed[w]) / rate[w] + 1e-9);
    return std::clamp<int64_t>(static_cast<int64_t>(std::min(many, 1e15)), 1, std::max<int64_t>(1, most[w]));
  };
  double slowest = 0;
  for (int w = 0; w < workers; ++w) {
    slowest = std::max(slowest, fixed[w] + rate[w] * static_cast<double>(total));
  }
  const Edge edge = Bisect(0, slowest, [&](double seconds) {
    int64_t sum = 0;
    for (int w = 0; w < workers; ++w) sum += samples_in(w, seconds);
    return sum >= total;
  });
  std::vector<int64_t> samples(workers);
  for (int w = 0; w < workers; ++w) samples[w] = samples_in(w, edge.from);
  int64_t surplus = std::accumulate(samples.begin(), samples.end(), int64_t{0}) - total;
  for (int w = 0; surplus > 0 && w < workers; ++w) {
    const int64_t less = std::min(surplus, samples[w] - 1);
    const int64_t one = std::min<int64_t>(less, 1);  // ties at the last sample, at most one each
    samples[w] -= one;
    surplus -= one;
  }
  return surplus == 0 ? samples : instance.samples;
}

Placement Finish(const PlacementInstance& instance, const Candidate& candidate, double coverage, int units) {
  Placement placement{.coverage = coverage, .samples = instance.samples, .gap = candidate.gap};
  placement.holders.resize(units);
  const std::vector<std::vector<int>> holders = candidate.holding.Holders();
  for (int b = 0; b < instance.bundles(); ++b) {
    for (int unit : instance.members[b]) placement.holders[unit] = holders[b];
  }
  for (int w = 0; w < instance.workers; ++w) placement.seconds.push_back(candidate.holding.seconds(w));
  placement.step_seconds = candidate.holding.Slowest();
  placement.holder_sets = candidate.holding.HolderSets();
  return placement;
}

// At request.coverage; `samples` by worker.
PlacementAnswer PlaceAt(const PlacementRequest& request, const std::vector<int64_t>& samples) {
  const PlacementInstance instance = MakeInstance(request, samples);
  PlacementAnswer answer;
  answer.infeasibility = ProveInfeasible(request, instance);
  if (answer.infeasibility) return answer;
  const int units = static_cast<int>(request.units.size());
  if (units == 0) {
    const Holding nothing(instance);
    answer.placement = Finish(instance, {nothing, 1}, request.coverage, 0);
    return answer;
  }
  const Solution solution = Solve(instance);
  const Candidate& best = *solution.best;
  if (best.holding.Overflow() > 0) {
    answer.infeasibility = PackingFailure(request, best.holding, solution.exhaustive);
  } else if (best.gap < request.min_gap) {
    answer.infeasibility = GapFailure(request, best.gap, solution.exhaustive);
  } else {
    answer.placement = Finish(instance, best, request.coverage, units);
    if (request.balance_samples && samples == std::vector<int64_t>(samples.size(), request.samples)) {
      const std::vector<int64_t> balanced = BalancedSamples(request, instance, best.holding);
      if (balanced == samples) return answer;
      PlacementAnswer again = PlaceAt(request, balanced);
      if (again.placement && again.placement->step_seconds < answer.placement->step_seconds) return again;
    }
  }
  return answer;
}

PlacementAnswer PlaceAt(const PlacementRequest& request) {
  // With other samples or workers than the list was made for, as remedies have, they are alike again.
  if (request.samples_of.size() == request.workers.size()) return PlaceAt(request, request.samples_of);
  return PlaceAt(request, std::vector<int64_t>(request.workers.size(), request.samples));
}

// Coverage in steps of one holder of one mean unit. Larger ones fit less, but for the whole units in which
// they come: bisection finds an edge, and what lies just above it is tried as well.
std::optional<PlacementAnswer> LargestCoverage(PlacementRequest request) {
  constexpr int64_t kAbove = 4;
  const int64_t units = std::max<int64_t>(1, static_cast<int64_t>(request.units.size()));
  const auto workers = static_cast<double>(request.workers.size());
  const double steps = workers * static_cast<double>(units);
  std::optional<PlacementAnswer> best;
  const auto fits = [&](int64_t step) {
    request.coverage = std::min(1.0, static_cast<double>(step) / steps);
    PlacementAnswer answer = PlaceAt(request);
    if (!answer.placement) return false;
    best = std::move(answer);
    return true;
  };
  int64_t low = std::max(1, request.min_holders) * units;
  const int64_t high = std::max(low, static_cast<int64_t>(std::floor(CoverageBound(request) * steps + 1e-9)));
  if (fits(high)) return best;
  if (low < high) fits(low);
  low = LargestFitting(low, high, fits);
  for (int64_t step = std::min(low + kAbove, static_cast<int64_t>(steps)); best && step > low; --step) {
    if (fits(step)) break;
  }
  return best;
}

int64_t LargestSamples(PlacementRequest request) {
  request.samples_of.clear();
  return LargestFitting(0, request.samples, [&](int64_t samples) {
    request.samples = samples;
    return PlaceAt(request).placement.has_value();
  });
}

int FewestWorkers(PlacementRequest request) {
  const auto best = std::max_element(
      request.workers.begin(), request.workers.end(),
      [](const PlacementWorker& a, const PlacementWorker& b) { return a.memory_bytes < b.memory_bytes; });
  const PlacementWorker more = *best;
  const int given = static_cast<int>(request.workers.size());
  // As many holders of each unit as asked for, on more workers.
  const double holders = request.coverage * given;
  request.tour.clear();
  for (int extra = 1; extra <= std::min(3 * given, 64); ++extra) {
    request.workers.push_back(more);
    request.coverage = std::min(1.0, holders / (given + extra));
    if (PlaceAt(request).placement) return given + extra;
  }
  return 0;
}

void AddRemedies(const PlacementRequest& request, Infeasibility& why) {
  PlacementRequest plain = request;
  plain.coverage_auto = plain.balance_samples = false;
  if (why.constraint != Constraint::kMinGap) {
    if (const auto smaller = LargestCoverage(plain);
        smaller && smaller->placement->coverage < request.coverage) {
      why.nearest_coverage = smaller->placement->coverage;
    }
    why.nearest_samples = LargestSamples(plain);
    if (why.constraint != Constraint::kAlwaysOn) why.nearest_workers = FewestWorkers(plain);
    return;
  }
  const double workers = static_cast<double>(request.workers.size());
  const auto all = static_cast<int>(request.workers.size());
  for (int holders = static_cast<int>(request.coverage * workers) + 1; holders <= all; ++holders) {
    plain.coverage = holders / workers;
    if (!PlaceAt(plain).placement) continue;
    why.nearest_coverage = plain.coverage;
    return;
  }
}

}  // namespace

absl::StatusOr<PlacementAnswer> Place(const PlacementRequest& request) {
  TESSERA_RETURN_IF_ERROR(CheckPlacementRequest(request));
  PlacementRequest asked = request;
  if (request.coverage_auto) {
    if (std::optional<PlacementAnswer> largest = LargestCoverage(request)) return *std::move(largest);
    asked.coverage = std::max(1, request.min_holders) / static_cast<double>(request.workers.size());
  }
  PlacementAnswer answer = PlaceAt(asked);
  if (answer.infeasibility && request.remedies) AddRemedies(asked, *answer.infeasibility);
  return answer;
}

std::vector<double> SecondsPerStep(const PlacementRequest& request,
                                   const std::vector<std::vector<int>>& holders,
                                   const std::vector<int64_t>& samples) {
  PlacementRequest whole = request;
  whole.max_holder_sets = 0;
  PlacementInstance instance = MakeInstance(whole, samples);
  std::vector<double> seconds = instance.fixed_seconds;
  for (size_t u = 0; u < holders.size(); ++u) {
    const double k = static_cast<double>(holders[u].size());
    instance.traffic[u] = 2 * (k - 1) / k * static_cast<double>(request.units[u].sync_bytes);
    for (int w : holders[u]) seconds[w] += instance.Seconds(w, static_cast<int>(u));
  }
  return seconds;
}

std::vector<int> ChooseWorkers(const PlacementRequest& request, int least) {
  const PlacementInstance all =
      MakeInstance(request, std::vector<int64_t>(request.workers.size(), request.samples));
  std::vector<int> order;
  for (int w = 0; w < all.workers; ++w) order.push_back(w);
  // Those that can't hold the always-on part go first, then the slowest.
  const auto cost = [&](int w) {
    double seconds = all.fixed_seconds[w];
    for (int b = 0; b < all.bundles(); ++b) seconds += all.Seconds(w, b);
    return std::tuple(all.room[w] < 0, seconds, w);
  };
  std::vector<std::tuple<bool, double, int>> costs;
  for (int w : order) costs.push_back(cost(w));
  std::sort(order.begin(), order.end(), [&](int a, int b) { return costs[a] < costs[b]; });

  std::vector<int> best = order;
  double best_rate = -1;
  for (int count = all.workers; count >= std::max(1, least); --count) {
    PlacementRequest fewer = request;
    fewer.workers.clear();
    fewer.tour.clear();
    for (int i = 0; i < count; ++i) fewer.workers.push_back(request.workers[order[i]]);
    const PlacementInstance some = MakeInstance(fewer, std::vector<int64_t>(count, request.samples));
    if (*std::min_element(some.room.begin(), some.room.end()) < 0) continue;
    const FractionalPlacement fractions = PlaceFractions(some);
    if (!fractions.fits || fractions.seconds <= 0) continue;
    const double rate = static_cast<double>(count * request.samples) / fractions.seconds;
    if (rate <= best_rate * (1 + kSameTime)) continue;
    best_rate = rate;
    best.assign(order.begin(), order.begin() + count);
  }
  std::sort(best.begin(), best.end());
  return best;
}

}  // namespace tessera::plan

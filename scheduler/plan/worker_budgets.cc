#include "scheduler/plan/worker_budgets.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/plan/bisection.h"

namespace tessera::plan {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Workers of one level, the weakest level first. A level can do what all members of it and of the levels
// above can: so budgets ascend with the levels whatever the time.
using Levels = std::vector<std::vector<size_t>>;

class Division {
 public:
  explicit Division(const WorkerBudgetRequest& request) : q_(request) {
    for (const WorkerLink& link : q_.workers) fastest_ = std::max(fastest_, link.bytes_per_second);
  }

  double floor() const { return std::ceil(q_.floor * static_cast<double>(q_.elements) - 1e-9); }

  double Room(size_t worker) const {  // elements that memory holds
    const int64_t usable = q_.workers[worker].usable_bytes;
    const auto all = static_cast<double>(q_.elements);
    if (usable < 0) return all;
    return std::min(
        all, std::floor(static_cast<double>(usable) / static_cast<double>(q_.memory_bytes_per_element)));
  }

  double Seconds(size_t worker, double elements) const {  // to send them; 0: no link is known
    const WorkerLink& link = q_.workers[worker];
    return fastest_ > 0 ? link.rtt_seconds + elements * q_.wire_bytes_per_element / Speed(link) : 0;
  }

  double Of(size_t worker, double seconds) const {  // elements
    const WorkerLink& link = q_.workers[worker];
    double sent = kInfinite;
    if (fastest_ > 0)
      sent = std::max(0.0, seconds - link.rtt_seconds) * Speed(link) / q_.wire_bytes_per_element;
    return std::max(floor(), std::min(sent, Room(worker)));
  }

  // By level, in elements.
  std::vector<double> Fill(const Levels& levels, double seconds) const {
    std::vector<double> budgets(levels.size());
    double least = kInfinite;
    for (size_t l = levels.size(); l-- > 0;) {
      for (size_t worker : levels[l]) least = std::min(least, Of(worker, seconds));
      budgets[l] = least;
    }
    return budgets;
  }

  double Sum(const Levels& levels, double seconds) const {
    const std::vector<double> budgets = Fill(levels, seconds);
    double sum = 0;
    for (size_t l = 0; l < levels.size(); ++l) sum += budgets[l] * static_cast<double>(levels[l].size());
    return sum;
  }

  // The least time in which the levels contribute `total`; infinite if they never do.
  double Time(const Levels& levels, double total) const {
    double high = 0;
    for (const WorkerLink& link : q_.workers) {
      if (fastest_ <= 0) continue;
      const double all = static_cast<double>(q_.elements) * q_.wire_bytes_per_element / Speed(link);
      high = std::max(high, link.rtt_seconds + all);
    }
    high *= 1 + 1e-9;
    if (Sum(levels, high) < total) return kInfinite;
    return Bisect(0, high, [&](double seconds) { return Sum(levels, seconds) >= total; }).from;
  }

 private:
  double Speed(const WorkerLink& link) const {
    return link.bytes_per_second > 0 ? link.bytes_per_second : fastest_;
  }

  const WorkerBudgetRequest& q_;
  double fastest_ = 0;  // bytes/s; 0: no link is known
};

// Divides ascending values into at most `most` runs so that the least is lost when every value is lowered
// to the first of its run; equal values stay together. Returns where runs begin.
std::vector<size_t> CutIntoRuns(const std::vector<double>& values, int most) {
  const size_t n = values.size();
  std::vector<double> prefix(n + 1, 0);
  for (size_t i = 0; i < n; ++i) prefix[i + 1] = prefix[i] + values[i];
  const auto lost = [&](size_t begin, size_t end) {
    return prefix[end] - prefix[begin] - values[begin] * static_cast<double>(end - begin);
  };
  const auto runs = static_cast<size_t>(most);
  std::vector<std::vector<double>> best(runs + 1, std::vector<double>(n + 1, kInfinite));
  std::vector<std::vector<size_t>> from(runs + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (size_t r = 1; r <= runs; ++r) {
    for (size_t end = 1; end <= n; ++end) {
      if (end < n && values[end] == values[end - 1]) continue;
      for (size_t begin = 0; begin < end; ++begin) {
        const double sum = best[r - 1][begin] + lost(begin, end);
        if (sum < best[r][end]) {
          best[r][end] = sum;
          from[r][end] = begin;
        }
      }
    }
  }
  size_t used = 1;
  for (size_t r = 2; r <= runs; ++r) {
    if (best[r][n] < best[used][n]) used = r;
  }
  std::vector<size_t> starts;
  for (size_t end = n, r = used; r > 0; --r) {
    end = from[r][end];
    starts.push_back(end);
  }
  std::reverse(starts.begin(), starts.end());
  return starts;
}

absl::Status Check(const WorkerBudgetRequest& q) {
  if (!(q.density > 0 && q.density <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("density ", q.density, " must be above 0 and at most 1"));
  }
  if (!(q.floor >= 0 && q.floor <= q.density)) {
    return absl::InvalidArgumentError(
        absl::StrCat("floor ", q.floor, " must be at least 0 and at most the density, ", q.density));
  }
  if (q.levels < 1) return absl::InvalidArgumentError("levels must be at least 1");
  for (size_t w = 0; w < q.workers.size(); ++w) {
    const WorkerLink& link = q.workers[w];
    if (link.floor >= 0 && link.floor <= link.ceiling && link.ceiling <= 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("worker ", w, ": floor ", link.floor, " and ceiling ",
                                                   link.ceiling, " must be 0 to 1, the ceiling not lower"));
  }
  return absl::OkStatus();
}

// How many elements all workers together are to keep.
absl::StatusOr<double> Target(const WorkerBudgetRequest& q, const Division& division) {
  double room = 0;
  for (size_t w = 0; w < q.workers.size(); ++w) {
    if (division.Room(w) < division.floor()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "worker ", w, " has ", q.workers[w].usable_bytes, " usable bytes in one block, and the floor of ",
          q.floor, " needs ", static_cast<int64_t>(division.floor()) * q.memory_bytes_per_element,
          "; lower the floor"));
    }
    room += division.Room(w);
  }
  const double all = static_cast<double>(q.elements) * static_cast<double>(q.workers.size());
  const double total = std::max(q.density * all, division.floor() * static_cast<double>(q.workers.size()));
  if (room < total * (1 - 1e-12)) {
    return absl::ResourceExhaustedError(absl::StrCat("the workers' memory holds ", room / all,
                                                     " of the gradients, and the density is ", q.density,
                                                     "; use density ", room / all));
  }
  return std::min(total, room);
}

// What each worker would keep by itself, so that nobody is held down by another.
std::vector<double> Wishes(const Division& division, size_t workers, double target) {
  const auto each = [&](double seconds) {
    std::vector<double> budgets;
    for (size_t w = 0; w < workers; ++w) budgets.push_back(division.Of(w, seconds));
    return budgets;
  };
  const auto enough = [&](double seconds) {
    const std::vector<double> budgets = each(seconds);
    return std::accumulate(budgets.begin(), budgets.end(), 0.0) >= target;
  };
  double high = 1;
  while (!enough(high) && high < 1e18) high *= 2;
  return each(Bisect(0, high, enough).from);
}

// Workers whose wishes are near each other share a level.
Levels LevelsOf(const std::vector<double>& wishes, int most) {
  std::vector<size_t> order(wishes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return wishes[a] < wishes[b]; });
  std::vector<double> sorted;
  for (size_t w : order) sorted.push_back(wishes[w]);
  const std::vector<size_t> starts = CutIntoRuns(sorted, most);
  Levels levels;
  for (size_t i = 0; i < order.size(); ++i) {
    if (levels.size() < starts.size() && starts[levels.size()] == i) levels.emplace_back();
    levels.back().push_back(order[i]);
  }
  return levels;
}

// Of workers without bounds of their own.
absl::StatusOr<WorkerBudgets> DivideFreely(const WorkerBudgetRequest& q) {
  const Division division(q);
  TESSERA_ASSIGN_OR_RETURN(const double target, Target(q, division));
  const Levels levels = LevelsOf(Wishes(division, q.workers.size(), target), q.levels);
  // Memory that a level's weakest member lacks is lost to the others of its level. If then the density
  // cannot be reached, more is lost than levels may cost: say so instead of sending less.
  const double seconds = division.Time(levels, target * (1 - 1e-12));
  if (seconds == kInfinite) {
    return absl::ResourceExhaustedError(
        absl::StrCat("with ", q.levels, " levels of budgets the workers' memory does not hold density ",
                     q.density, "; lower the density or allow more levels"));
  }

  // Without a time limit (links unknown, or the floor suffices) levels may offer more than is wanted:
  // then the strongest are lowered to one height.
  const std::vector<double> offered = division.Fill(levels, seconds);
  const Edge height = Bisect(0, static_cast<double>(q.elements), [&](double most) {
    double sum = 0;
    for (size_t l = 0; l < levels.size(); ++l) {
      sum += std::min(offered[l], most) * static_cast<double>(levels[l].size());
    }
    return sum >= target;
  });
  WorkerBudgets result;
  result.seconds = seconds;
  result.kept.resize(q.workers.size());
  for (size_t l = 0; l < levels.size(); ++l) {
    for (size_t w : levels[l]) {
      result.kept[w] = static_cast<int64_t>(std::floor(std::min(offered[l], height.from) + 1e-6));
    }
  }
  return result;
}

}  // namespace

// Whoever would be beyond a bound of its own is put there, and the others divide the rest again.
absl::StatusOr<WorkerBudgets> DivideAmongWorkers(const WorkerBudgetRequest& q) {
  TESSERA_RETURN_IF_ERROR(Check(q));
  const auto all = static_cast<double>(q.elements);
  const double total = q.density * all * static_cast<double>(q.workers.size());
  WorkerBudgets result;
  result.kept.assign(q.workers.size(), 0);
  std::vector<size_t> free(q.workers.size());
  std::iota(free.begin(), free.end(), size_t{0});
  for (double left = total; !free.empty();) {
    WorkerBudgetRequest rest = q;
    rest.workers.clear();
    for (size_t w : free) rest.workers.push_back(q.workers[w]);
    rest.density = std::clamp(left / (all * static_cast<double>(free.size())), 1e-9, 1.0);
    rest.floor = std::min(q.floor, rest.density);
    TESSERA_ASSIGN_OR_RETURN(const WorkerBudgets budgets, DivideFreely(rest));
    // By how much each is below its floor (negative: above its ceiling).
    std::vector<int64_t> missing;
    int64_t below = 0, above = 0;
    for (size_t i = 0; i < free.size(); ++i) {
      const auto least = static_cast<int64_t>(std::ceil(q.workers[free[i]].floor * all - 1e-6));
      const auto most = static_cast<int64_t>(std::floor(q.workers[free[i]].ceiling * all + 1e-6));
      missing.push_back(std::clamp(budgets.kept[i], least, std::max(least, most)) - budgets.kept[i]);
      (missing[i] > 0 ? below : above) += std::abs(missing[i]);
    }
    std::vector<size_t> still;
    for (size_t i = 0; i < free.size(); ++i) {
      const bool bound = below >= above ? missing[i] > 0 : missing[i] < 0;
      result.kept[free[i]] = budgets.kept[i] + (bound ? missing[i] : 0);
      if (bound) left -= static_cast<double>(result.kept[free[i]]);
      if (!bound && below + above > 0) still.push_back(free[i]);
    }
    if (free.size() == q.workers.size()) result.seconds = budgets.seconds;
    free = std::move(still);
  }
  const double sum = std::accumulate(result.kept.begin(), result.kept.end(), 0.0);
  if (std::abs(sum - total) > 2 * static_cast<double>(q.workers.size()) + 1) {
    return absl::InvalidArgumentError(absl::StrCat("the workers' own bounds allow a density of ",
                                                   sum / (all * static_cast<double>(q.workers.size())),
                                                   " on the mean, not ", q.density));
  }
  const Division links(q);
  double seconds = 0;
  for (size_t w = 0; w < q.workers.size(); ++w) {
    seconds = std::max(seconds, links.Seconds(w, static_cast<double>(result.kept[w])));
  }
  result.seconds = std::max(result.seconds, seconds);  // bounds may have made it longer
  return result;
}

}  // namespace tessera::plan

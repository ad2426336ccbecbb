#include "scheduler/job/deadlines.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::job {
namespace {

bool Passed(absl::Time since, absl::Duration limit, absl::Time now) {
  return limit > absl::ZeroDuration() && since != absl::InfiniteFuture() && now > since + limit;
}

std::string Ranks(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "worker " : "workers ", absl::StrJoin(ranks, ", "));
}

template <typename Predicate>
std::vector<int> RanksWhere(const Observed& observed, Predicate predicate) {
  std::vector<int> ranks;
  for (const ObservedWorker& worker : observed.workers) {
    if (!HasEnded(worker) && predicate(worker)) ranks.push_back(worker.rank);
  }
  return ranks;
}

bool Waits(const ObservedWorker& worker) {
  return worker.standstill.has_value() && !worker.standstill->empty();
}

// Whom the others wait for, as far as they say: of several that wait, those that do not. Empty: unknown.
std::vector<int> AwaitedRanks(const Observed& observed) {
  if (RanksWhere(observed, Waits).empty()) return {};
  return RanksWhere(observed, [](const auto& w) { return !Waits(w); });
}

// "; worker 0 waits in all-reduce in group {0,1}" for the first few that do.
std::string WhoWaits(const Observed& observed) {
  constexpr int kShown = 4;
  std::string text;
  int shown = 0;
  for (const ObservedWorker& worker : observed.workers) {
    if (HasEnded(worker) || !Waits(worker)) continue;
    if (++shown > kShown) return text + ", ...";
    absl::StrAppend(&text, shown == 1 ? "; " : ", ", "worker ", worker.rank, " waits in ",
                    *worker.standstill);
  }
  return text;
}

std::optional<Failure> Overdue(const Observed& observed, std::string reason, std::vector<int> ranks,
                               std::string what, absl::Duration limit) {
  if (ranks.empty()) return std::nullopt;
  // When one stops all wait for it.
  if (std::vector<int> halted = RanksWhere(observed, [](const auto& w) { return w.halted; });
      !halted.empty()) {
    ranks = std::move(halted);
    what = absl::StrCat(ranks.size() == 1 ? "is" : "are", " stopped by a signal (SIGSTOP or a debugger) and ",
                        what);
  } else if (std::vector<int> awaited = AwaitedRanks(observed); !awaited.empty()) {
    ranks = std::move(awaited);
  }
  return Failure{
      FailureClass::kInfrastructure, ranks.size() == 1 ? ranks[0] : -1, std::move(reason),
      absl::StrCat(Ranks(ranks), " ", what, " within ", absl::FormatDuration(limit), WhoWaits(observed))};
}

bool Aside(const ObservedWorker& worker) { return IsAside(worker.phase); }

}  // namespace

std::optional<Failure> FindOverdue(const JobView& view, const Observed& observed, absl::Time now) {
  const Deadlines& limit = view.deadlines;
  if (!observed.launched || observed.workers.empty()) return std::nullopt;
  if (observed.greeted_at == absl::InfiniteFuture()) {
    if (!Passed(observed.launched_at, limit.start, now)) return std::nullopt;
    return Overdue(observed, "StartDeadlineExceeded",
                   RanksWhere(observed, [](const auto& w) { return !w.greeted; }), "did not connect",
                   limit.start);
  }
  if (observed.met_at == absl::InfiniteFuture()) {
    if (!Passed(observed.greeted_at, limit.rendezvous, now)) return std::nullopt;
    return Overdue(
        observed, "RendezvousDeadlineExceeded",
        RanksWhere(observed, [](const auto& w) { return w.phase <= Phase::kRendezvous && w.step == 0; }),
        "did not finish the rendezvous", limit.rendezvous);
  }
  bool aside = false;
  for (const ObservedWorker& worker : observed.workers) aside = aside || Aside(worker);
  const auto anyone = [](const ObservedWorker&) { return true; };
  if (aside) {
    if (!Passed(observed.progress_at, limit.checkpoint, now)) return std::nullopt;
    return Overdue(observed, "CheckpointDeadlineExceeded", RanksWhere(observed, Aside),
                   "did not finish evaluating, checkpointing or exporting", limit.checkpoint);
  }
  if (observed.first_step_at == absl::InfiniteFuture()) {
    if (!Passed(
            std::max(observed.met_at,
                     observed.progress_at == absl::InfiniteFuture() ? observed.met_at : observed.progress_at),
            limit.first_step, now)) {
      return std::nullopt;
    }
    return Overdue(observed, "FirstStepDeadlineExceeded", RanksWhere(observed, anyone), "made no first step",
                   limit.first_step);
  }
  if (!Passed(observed.progress_at, limit.step, now)) return std::nullopt;
  return Overdue(observed, "StepDeadlineExceeded", RanksWhere(observed, anyone), "made no step", limit.step);
}

bool QueueOverdue(const JobView& view, absl::Time now) {
  return Passed(view.queued_at, view.deadlines.queue, now);
}

}  // namespace tessera::job

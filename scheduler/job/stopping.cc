#include "scheduler/job/stopping.h"

#include <algorithm>

namespace tessera::job {

bool AnyRunning(const Observed& observed) {
  return std::any_of(observed.workers.begin(), observed.workers.end(),
                     [](const ObservedWorker& w) { return w.running; });
}

bool AllEnded(const Observed& observed, Outcome outcome) {
  return !observed.workers.empty() &&
         std::all_of(observed.workers.begin(), observed.workers.end(),
                     [&](const ObservedWorker& w) { return EffectiveOutcome(w) == outcome; });
}

namespace {

// Zero deadlines: never.
absl::Duration DrainLimit(const Deadlines& deadlines, const Observed& observed) {
  const bool aside = std::any_of(observed.workers.begin(), observed.workers.end(),
                                 [](const auto& w) { return !HasEnded(w) && IsAside(w.phase); });
  if (deadlines.drain <= absl::ZeroDuration()) return absl::InfiniteDuration();
  if (!aside) return deadlines.drain;
  // What a worker is in the middle of has its own deadline.
  if (deadlines.checkpoint <= absl::ZeroDuration()) return absl::InfiniteDuration();
  return std::max(deadlines.drain, deadlines.checkpoint);
}

}  // namespace

bool Drain(const JobView& view, const Observed& observed, absl::Time now, Decision& decision) {
  if (!AnyRunning(observed)) return true;
  absl::Time since = view.stopping_since;
  if (since == absl::InfiniteFuture()) {
    since = now;
    decision.stop_started = true;
    decision.actions.push_back({Action::Kind::kAskStop, view.epoch});
  }
  // A group that lost a member can't write a checkpoint together.
  const bool broken = FindFailure(observed, /*stop_requested=*/true, now).has_value();
  const bool trains =
      std::any_of(observed.workers.begin(), observed.workers.end(),
                  [](const ObservedWorker& w) { return w.step > 0 || w.phase >= Phase::kTraining; });
  const bool ended = std::all_of(observed.workers.begin(), observed.workers.end(), HasEnded);
  const bool patient = trains && !broken;
  absl::Time terminate_at = patient ? since + DrainLimit(view.deadlines, observed) : since;
  if (ended) terminate_at = std::min(terminate_at, since + kExitGrace);
  if (now < terminate_at) return false;
  if (view.terminated_at == absl::InfiniteFuture()) {
    decision.actions.push_back({Action::Kind::kTerminate, view.epoch});
  } else if (now >= view.terminated_at + kTerminateGrace) {
    decision.actions.push_back({Action::Kind::kKill, view.epoch});
  }
  return false;
}

}  // namespace tessera::job

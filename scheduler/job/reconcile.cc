#include "scheduler/job/reconcile.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "scheduler/job/deadlines.h"
#include "scheduler/job/stopping.h"

namespace tessera::job {
namespace {

using Kind = Action::Kind;
using S = JobState;

void Become(Decision& decision, S state, std::string reason, std::string message) {
  decision.state = state;
  decision.reason = std::move(reason);
  decision.message = std::move(message);
}

// Ends the job's ownership of the machine.
void EndAs(Decision& decision, S state, std::string reason, std::string message) {
  Become(decision, state, std::move(reason), std::move(message));
  decision.actions.push_back({Kind::kRelease, decision.epoch});
}

// Other nodes are asked as a new job asks them: with a plan of their own, and in its turn.
void LeaveLostNode(const Observed& observed, Decision& decision) {
  EndAs(decision, S::kQueued, "NodeLost",
        absl::StrCat("node '", observed.lost_node, "' does not report; the job is planned again without it"));
}

// Not launched, and about to stop: nothing to wait for.
bool StopBeforeLaunch(const JobView& view, Decision& decision) {
  if (view.cancel_requested) {
    EndAs(decision, S::kCancelled, "Cancelled", "cancelled before any worker was started");
    return true;
  }
  if (view.suspend_requested && view.state != S::kSuspended) {
    EndAs(decision, S::kSuspended, "Suspended", "suspended; resume it to run it");
    return true;
  }
  return false;
}

// A job is stored with its plan; one that has none is planned before it takes capacity.
void PlanFirst(const JobView& view, const Observed& observed, absl::Time now, Decision& decision) {
  if (observed.plan_error.empty()) {
    if (now < view.retry_at) return;
    decision.actions.push_back({Kind::kPlan, view.epoch});
    decision.reason = "Planning";
    decision.message = "the plan is being made";
    return;
  }
  const auto failure_class =
      observed.plan_error_final ? FailureClass::kInvalid : FailureClass::kInfrastructure;
  decision.failure = Failure{failure_class, -1, "PlanningFailed", observed.plan_error};
  auto failures = view.failures;
  ++failures[static_cast<size_t>(failure_class)];
  const auto retry = RetryTime(view.retry, failures, failure_class, now);
  if (!retry.has_value()) {
    EndAs(decision, S::kFailed, "PlanningFailed", observed.plan_error);
    return;
  }
  decision.actions.push_back({Kind::kScheduleRetry, view.epoch, *retry});
  decision.reason = "PlanningFailed";
  decision.message =
      absl::StrCat(observed.plan_error, "; tried again in ", absl::FormatDuration(*retry - now));
}

void FromWaiting(const JobView& view, const Observed& observed, absl::Time now, Decision& decision) {
  if (StopBeforeLaunch(view, decision)) return;
  if (view.state == S::kSuspended) {
    if (!view.suspend_requested) Become(decision, S::kQueued, "Resumed", "resumed; waits for capacity");
    return;
  }
  if (QueueOverdue(view, now)) {
    EndAs(decision, S::kFailed, "QueueDeadlineExceeded",
          absl::StrCat("waited longer than ", absl::FormatDuration(view.deadlines.queue), ": ",
                       observed.admission_message));
    return;
  }
  if (!view.planned) {
    PlanFirst(view, observed, now, decision);
    return;
  }
  if (observed.admitted) {
    Become(decision, S::kPlanned, "Admitted", observed.admission_message);
    return;
  }
  decision.reason = "WaitingForCapacity";
  decision.message = observed.admission_message;
}

void FromPlanned(const JobView& view, const Observed& observed, absl::Time now, Decision& decision) {
  if (StopBeforeLaunch(view, decision)) return;
  if (!observed.lost_node.empty()) return LeaveLostNode(observed, decision);
  if (!view.planned) {
    PlanFirst(view, observed, now, decision);
    return;
  }
  if (now < view.retry_at) return;
  decision.epoch = view.epoch + 1;
  Become(decision, S::kStarting, "Starting", absl::StrCat("starting ", view.workers, " workers"));
}

// Counts the failure and either schedules another epoch or fails. Workers are killed
// either way; FAILED is only entered when none is left.
void Fail(const JobView& view, const Observed& observed, const Failure& failure, absl::Time now,
          Decision& decision) {
  decision.failure = failure;
  auto failures = view.failures;
  ++failures[static_cast<size_t>(failure.failure_class)];
  if (AnyRunning(observed)) decision.actions.push_back({Kind::kKill, view.epoch});
  const auto retry = RetryTime(view.retry, failures, failure.failure_class, now);
  if (retry.has_value()) {
    decision.actions.push_back({Kind::kScheduleRetry, view.epoch, *retry});
    Become(decision, S::kDegraded, failure.reason,
           absl::StrCat(failure.message, "; the group restarts in ", absl::FormatDuration(*retry - now)));
    return;
  }
  const auto index = static_cast<size_t>(failure.failure_class);
  std::string message = failure.message;
  if (failure.failure_class != FailureClass::kInvalid) {
    absl::StrAppend(&message, "; ", FailureClassName(failure.failure_class), " failures are retried ",
                    view.retry.limit[index], view.retry.limit[index] == 1 ? " time" : " times");
  }
  decision.actions.push_back({Kind::kScheduleRetry, view.epoch, absl::InfiniteFuture()});
  if (AnyRunning(observed)) {
    Become(decision, S::kDegraded, failure.reason, std::move(message));
  } else {
    EndAs(decision, S::kFailed, failure.reason, std::move(message));
  }
}

void FromDegraded(const JobView& view, const Observed& observed, absl::Time now, Decision& decision) {
  if (AnyRunning(observed)) {
    decision.actions.push_back({Kind::kKill, view.epoch});
    return;
  }
  if (view.cancel_requested) {
    EndAs(decision, S::kCancelled, "Cancelled", "cancelled");
  } else if (view.retry_at == absl::InfiniteFuture()) {
    EndAs(decision, S::kFailed, "", view.failure);
  } else if (view.suspend_requested) {
    EndAs(decision, S::kSuspended, "Suspended", absl::StrCat("suspended after a failure: ", view.failure));
  } else if (!observed.lost_node.empty()) {
    LeaveLostNode(observed, decision);
  } else if (!view.planned) {  // what was learnt from the failure goes into another plan
    PlanFirst(view, observed, now, decision);
  } else if (now >= view.retry_at) {
    decision.epoch = view.epoch + 1;
    Become(decision, S::kStarting, "Restarting", absl::StrCat("restarting after a failure: ", view.failure));
  }
}

// All workers reported the end of training. Their processes are waited for so that a
// job that has ended owns no process.
void Complete(const JobView& view, const Observed& observed, absl::Time now, Decision& decision) {
  if (!AnyRunning(observed)) {
    EndAs(decision, S::kSucceeded, "Completed", "training is complete");
    return;
  }
  absl::Time last = absl::InfinitePast();
  for (const ObservedWorker& worker : observed.workers) last = std::max(last, worker.ended_at);
  if (now >= last + kExitGrace) decision.actions.push_back({Kind::kKill, view.epoch});
}

void Stopping(const JobView& view, const Observed& observed, absl::Time now, Decision& decision) {
  const bool drained = Drain(view, observed, now, decision);
  if (!drained) {
    decision.reason = view.cancel_requested ? "Cancelling" : "Suspending";
    decision.message = "workers write a checkpoint and stop";
    return;
  }
  const bool clean = AllEnded(observed, Outcome::kStopped);
  const std::string how = clean ? " after a checkpoint" : "; not every worker wrote its last state";
  if (view.cancel_requested) {
    EndAs(decision, S::kCancelled, "Cancelled", absl::StrCat("cancelled", how));
  } else {
    EndAs(decision, S::kSuspended, "Suspended", absl::StrCat("suspended", how));
  }
}

void Progress(const JobView& view, const Observed& observed, Decision& decision) {
  int64_t step = 0;
  for (const ObservedWorker& worker : observed.workers) step = std::max(step, worker.step);
  if (view.state == S::kStarting && observed.first_step_at != absl::InfiniteFuture()) {
    if (step < view.warmup_steps) {
      Become(decision, S::kWarmup, "WarmingUp", "training densely before the first budgets");
    } else {
      Become(decision, S::kRunning, "Training", "training");
    }
  } else if (view.state == S::kWarmup && step >= view.warmup_steps) {
    Become(decision, S::kRunning, "Training", "training");
  }
}

void FromLaunched(const JobView& view, const Observed& observed, absl::Time now, Decision& decision) {
  const bool stop_wanted = view.cancel_requested || view.suspend_requested;
  const bool stopping = stop_wanted || view.stopping_since != absl::InfiniteFuture();
  if (!observed.launched) {
    if (StopBeforeLaunch(view, decision)) {
      // A launch may have been interrupted before it was recorded.
      decision.actions.push_back({Kind::kKill, view.epoch});
      return;
    }
    if (observed.launch_error.empty()) {
      decision.actions.push_back({Kind::kLaunch, view.epoch});
      return;
    }
    const auto failure_class =
        observed.launch_error_final ? FailureClass::kInvalid : FailureClass::kInfrastructure;
    Fail(view, observed, {failure_class, -1, "LaunchFailed", observed.launch_error}, now, decision);
    return;
  }
  if (AllEnded(observed, Outcome::kCompleted)) {
    Complete(view, observed, now, decision);
    return;
  }
  if (stopping) {
    Stopping(view, observed, now, decision);
    return;
  }
  if (auto failure = FindFailure(observed, /*stop_requested=*/false, now); failure.has_value()) {
    Fail(view, observed, *failure, now, decision);
    return;
  }
  if (auto overdue = FindOverdue(view, observed, now); overdue.has_value()) {
    Fail(view, observed, *overdue, now, decision);
    return;
  }
  Progress(view, observed, decision);
}

}  // namespace

Decision Reconcile(const JobView& view, const Observed& observed, absl::Time now) {
  Decision decision;
  decision.state = view.state;
  decision.epoch = view.epoch;
  switch (view.state) {
    case S::kUnspecified:
      Become(decision, S::kQueued, "Queued", "waits for capacity");
      break;
    case S::kSucceeded:
    case S::kFailed:
    case S::kCancelled:
      break;
    case S::kQueued:
    case S::kProfiling:
    case S::kSuspended:
      FromWaiting(view, observed, now, decision);
      break;
    case S::kPlanned:
      FromPlanned(view, observed, now, decision);
      break;
    case S::kDegraded:
      FromDegraded(view, observed, now, decision);
      break;
    case S::kStarting:
    case S::kWarmup:
    case S::kRunning:
    case S::kReplanning:
      FromLaunched(view, observed, now, decision);
      break;
  }
  TESSERA_CHECK(IsLegalTransition(view.state, decision.state));
  return decision;
}

}  // namespace tessera::job

// Decides what a job should become and what must be done for it. Pure: the
// controller observes, calls this, performs the actions and writes the status once.
// Called again with an unchanged world it asks for the same things again; every
// action is idempotent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/job/failure_policy.h"
#include "scheduler/job/job_view.h"

namespace tessera::job {

struct Action {
  enum class Kind : uint8_t {
    kPlan,           // make and store a plan
    kLaunch,         // start the workers of `epoch`
    kAskStop,        // Stop over the worker channel, with a checkpoint
    kTerminate,      // SIGTERM or its like
    kKill,           // at once, with everything they started, also what no record tells of
    kScheduleRetry,  // store `at` as the time before which nothing is launched
    kRelease,        // capacity, channels and rendezvous of the epoch are given back
  };
  Kind kind;
  int epoch = 0;
  absl::Time at = absl::InfinitePast();
};

struct Decision {
  JobState state = JobState::kQueued;
  std::string reason;  // CamelCase word; empty: as before
  std::string message;
  int epoch = 0;  // JobView::epoch, or one more when a new group is started
  std::vector<Action> actions;
  std::optional<Failure> failure;  // newly found, to be counted
  bool stop_started = false;       // JobView::stopping_since becomes now
};

// After the drain deadline workers are terminated, and killed this much later.
inline constexpr absl::Duration kTerminateGrace = absl::Seconds(10);
// A worker that reported its end may take this long to exit before it is killed.
inline constexpr absl::Duration kExitGrace = absl::Seconds(15);

// The decision's state is always a legal successor of view.state.
Decision Reconcile(const JobView& view, const Observed& observed, absl::Time now);

}  // namespace tessera::job

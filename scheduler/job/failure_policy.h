// Whose fault it was, and whether the group is started again.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "scheduler/job/job_view.h"

namespace tessera::job {

absl::string_view FailureClassName(FailureClass failure_class);

struct Failure {
  FailureClass failure_class = FailureClass::kInfrastructure;
  int rank = -1;        // -1: nobody in particular
  std::string reason;   // CamelCase word
  std::string message;  // names the rank and the cause
};

// Exit codes by which a worker says its outcome should its Finished message get lost
// (worker/control/exit_code.h). Others than these and 0 are failures of the application.
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInvalid = 3;
inline constexpr int kExitStopped = 10;
inline constexpr int kExitPeerLost = 11;
inline constexpr int kExitOutOfMemory = 12;

// The outcome of a worker: what it reported, else what its exit says. kNone while it
// runs without a report, and for an end that says nothing (signal, unknown status).
Outcome EffectiveOutcome(const ObservedWorker& worker);
// Its process is gone, or it said how it ended.
bool HasEnded(const ObservedWorker& worker);

// The failure of the group, if there is one: that of the worker that went first for a
// reason of its own. Workers that report a lost peer are witnesses, not culprits; as
// long as only they have ended, the culprit is waited for up to kWitnessGrace. A worker
// that stops without being asked has failed, too.
inline constexpr absl::Duration kWitnessGrace = absl::Seconds(5);
std::optional<Failure> FindFailure(const Observed& observed, bool stop_requested, absl::Time now);

// When the group may start again after a further failure of this class; nullopt: never.
// `failures` counts this one already.
std::optional<absl::Time> RetryTime(const RetryPolicy& policy,
                                    const std::array<int, kFailureClasses>& failures,
                                    FailureClass failure_class, absl::Time now);

}  // namespace tessera::job

// What Reconcile knows: the job as stored, and the world as it was last seen.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/job/job_state.h"

namespace tessera::job {

enum class FailureClass : uint8_t { kInfrastructure = 0, kOutOfMemory = 1, kApplication = 2, kInvalid = 3 };
inline constexpr int kFailureClasses = 4;

struct RetryPolicy {
  std::array<int, kFailureClasses> limit = {3, 0, 0, 0};  // by FailureClass; invalid is never retried
  absl::Duration backoff = absl::Seconds(1);              // first wait, doubled with each restart
};

struct Deadlines {  // zero: none
  absl::Duration queue, start, rendezvous, first_step, step, checkpoint, drain;
};

// Specification and stored status of a job.
struct JobView {
  JobState state = JobState::kQueued;
  int workers = 1;
  int epoch = 0;         // newest incarnation, 0: none yet
  bool planned = false;  // a plan is stored
  bool cancel_requested = false;
  bool suspend_requested = false;
  int64_t warmup_steps = 0;  // steps before budgets apply; 0: no warm-up
  RetryPolicy retry;
  Deadlines deadlines;
  std::array<int, kFailureClasses> failures = {};      // counted so far
  absl::Time queued_at = absl::InfiniteFuture();       // when it last became QUEUED
  absl::Time retry_at = absl::InfinitePast();          // not launched before
  absl::Time stopping_since = absl::InfiniteFuture();  // workers were asked to stop
  absl::Time terminated_at = absl::InfiniteFuture();   // and, as they did not, were terminated
  std::string failure;                                 // of the epoch that is being ended, for messages
};

enum class Outcome : uint8_t {  // same numbers as v1::WorkerOutcome
  kNone = 0,
  kCompleted = 1,
  kStopped = 2,
  kPeerLost = 3,
  kOutOfMemory = 4,
  kApplication = 5,
  kInvalid = 6,
};

enum class Phase : uint8_t {  // same numbers as v1::WorkerPhase
  kNone = 0,
  kRendezvous = 1,
  kLoading = 2,
  kTraining = 3,
  kEvaluating = 4,
  kCheckpointing = 5,
  kExporting = 6,
};

// Between steps, for as long as the checkpoint deadline allows.
inline bool IsAside(Phase phase) {
  return phase == Phase::kEvaluating || phase == Phase::kCheckpointing || phase == Phase::kExporting;
}

// A worker of the current epoch.
struct ObservedWorker {
  int rank = 0;
  bool running = false;     // its process lives
  bool halted = false;      // lives, but is stopped by a signal
  bool exit_known = false;  // meaningful when not running
  int exit_code = 0;
  int signal = 0;                                // that ended it, 0: none
  absl::Time ended_at = absl::InfiniteFuture();  // when its end (process or outcome) was first seen
  bool connected = false;
  bool greeted = false;  // said hello in this epoch
  Phase phase = Phase::kNone;
  int64_t step = 0;
  // Said since its last progress; unset: nothing. The collective it waits in, empty: it computes.
  std::optional<std::string> standstill;
  Outcome outcome = Outcome::kNone;  // of its Finished message
  std::string error;
};

struct Observed {
  bool admitted = false;                              // may take capacity now, see admission.h
  std::string admission_message;                      // why not, or what was given
  bool launched = false;                              // the launcher has a record of the current epoch
  std::string launch_error;                           // the last attempt to launch the current epoch failed
  bool launch_error_final = false;                    // and trying again can't help
  std::string plan_error;                             // the last attempt to plan failed
  bool plan_error_final = false;                      // and trying again can't help
  std::string lost_node;                              // that the plan needs and others could stand in for
  std::vector<ObservedWorker> workers;                // by rank; empty when not launched
  absl::Time launched_at = absl::InfiniteFuture();    // or adopted, after a restart of the scheduler
  absl::Time greeted_at = absl::InfiniteFuture();     // all said hello
  absl::Time met_at = absl::InfiniteFuture();         // all are past the rendezvous
  absl::Time first_step_at = absl::InfiniteFuture();  // of this epoch
  absl::Time progress_at = absl::InfiniteFuture();    // newest step or change of phase of any worker
};

}  // namespace tessera::job

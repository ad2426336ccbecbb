#include "scheduler/job/job_state.h"

#include <array>
#include <initializer_list>

namespace tessera::job {
namespace {

using S = JobState;

constexpr std::array<absl::string_view, kJobStates> kNames = {
    "UNSPECIFIED", "QUEUED",   "PROFILING", "PLANNED",   "STARTING", "WARMUP",   "RUNNING",
    "REPLANNING",  "DEGRADED", "SUSPENDED", "SUCCEEDED", "FAILED",   "CANCELLED"};

constexpr uint16_t To(std::initializer_list<S> states) {
  uint16_t bits = 0;
  for (S s : states) bits |= static_cast<uint16_t>(1u << static_cast<int>(s));
  return bits;
}

// Row: from. FAILED and CANCELLED can be reached from everything that has not ended.
constexpr uint16_t kAlways = To({S::kFailed, S::kCancelled});
constexpr uint16_t kStopped = To({S::kSuspended}) | kAlways;
constexpr std::array<uint16_t, kJobStates> kNext = {
    /* UNSPECIFIED */ To({S::kQueued}),
    /* QUEUED      */ static_cast<uint16_t>(To({S::kProfiling, S::kPlanned}) | kStopped),
    /* PROFILING   */ static_cast<uint16_t>(To({S::kPlanned, S::kQueued}) | kStopped),
    /* PLANNED     */ static_cast<uint16_t>(To({S::kStarting, S::kQueued}) | kStopped),
    // A resumed run whose last step was made already succeeds without another one.
    /* STARTING    */
    static_cast<uint16_t>(To({S::kWarmup, S::kRunning, S::kDegraded, S::kSucceeded}) | kStopped),
    /* WARMUP      */
    static_cast<uint16_t>(To({S::kRunning, S::kReplanning, S::kDegraded, S::kSucceeded}) | kStopped),
    /* RUNNING     */ static_cast<uint16_t>(To({S::kReplanning, S::kDegraded, S::kSucceeded}) | kStopped),
    /* REPLANNING  */ static_cast<uint16_t>(To({S::kRunning, S::kDegraded, S::kSucceeded}) | kStopped),
    // Back to the queue where the plan's node is gone.
    /* DEGRADED    */
    static_cast<uint16_t>(To({S::kQueued, S::kStarting, S::kRunning, S::kSucceeded}) | kStopped),
    /* SUSPENDED   */ static_cast<uint16_t>(To({S::kQueued}) | kAlways),
    /* SUCCEEDED   */ 0,
    /* FAILED      */ 0,
    /* CANCELLED   */ 0,
};

}  // namespace

absl::string_view JobStateName(JobState state) { return kNames[static_cast<size_t>(state)]; }

bool IsTerminal(JobState state) {
  return state == S::kSucceeded || state == S::kFailed || state == S::kCancelled;
}

bool HoldsCapacity(JobState state) { return state >= S::kPlanned && state <= S::kDegraded; }

bool IsLegalTransition(JobState from, JobState to) {
  return from == to || (kNext[static_cast<size_t>(from)] & (1u << static_cast<int>(to))) != 0;
}

}  // namespace tessera::job

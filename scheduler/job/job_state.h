// States of a training job and the transitions between them. Pure.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace tessera::job {

// Same numbers as v1::JobState.
enum class JobState : uint8_t {
  kUnspecified = 0,
  kQueued = 1,
  kProfiling = 2,
  kPlanned = 3,
  kStarting = 4,
  kWarmup = 5,
  kRunning = 6,
  kReplanning = 7,
  kDegraded = 8,
  kSuspended = 9,
  kSucceeded = 10,
  kFailed = 11,
  kCancelled = 12,
};
inline constexpr int kJobStates = 13;

// "QUEUED", "RUNNING", ...
absl::string_view JobStateName(JobState state);

// Nothing leaves a terminal state.
bool IsTerminal(JobState state);

// The job owns its share of the machine: workers run, or may be started at any
// moment. State and ownership are one fact, so they can't disagree.
bool HoldsCapacity(JobState state);

// Staying where one is counts as legal.
bool IsLegalTransition(JobState from, JobState to);

}  // namespace tessera::job

// Phases of a run that took too long.
#pragma once

#include <optional>

#include "scheduler/job/failure_policy.h"
#include "scheduler/job/job_view.h"

namespace tessera::job {

// Of a launched group that is not being stopped: start, rendezvous, first step, step,
// and checkpoint (also evaluation and export, which make no step either). A group
// that hangs is an infrastructure failure and may be retried.
std::optional<Failure> FindOverdue(const JobView& view, const Observed& observed, absl::Time now);

// True when a QUEUED job waited longer than its queue deadline.
bool QueueOverdue(const JobView& view, absl::Time now);

}  // namespace tessera::job

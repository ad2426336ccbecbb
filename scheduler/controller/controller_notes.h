// What the controller must remember of a job beyond its public status, so that
// a restarted scheduler decides as the old one would have.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/job/job_view.h"

namespace tessera::scheduler {

struct ControllerNotes {
  std::array<int, job::kFailureClasses> failures = {};
  std::string failure;  // of the epoch that was ended last
  absl::Time queued_at = absl::InfiniteFuture();
  absl::Time retry_at = absl::InfinitePast();
  absl::Time stopping_since = absl::InfiniteFuture();
  int resize_to = 0;         // workers asked for; 0: none, or done
  int workers = 0;           // of an elastic job, instead of spec.workers.count; 0: as many as that
  int grow_to = 0;           // of an elastic job: what `workers` becomes at the next stop; 0: it stays
  int64_t usable_bytes = 0;  // per worker, as running out of memory taught; 0: nothing learnt
  int usable_rank = 0;       // that taught it
  bool planned = false;
  bool delete_when_done = false;
  bool first_step_counted = false;
  std::vector<int> outcomes;  // of the current epoch by rank, job::Outcome; what Finished said
};

// JSON. Unreadable notes give defaults: the job goes on with its counters at zero.
std::string Encode(const ControllerNotes& notes);
ControllerNotes DecodeNotes(const std::string& text);

}  // namespace tessera::scheduler

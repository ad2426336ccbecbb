// Who may use the machine. Pure: ownership follows from the jobs' states, so one
// pass over all jobs is the whole transaction.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tessera::job {

// Code, libraries and runtime of a worker process, beside its counted tensors.
inline constexpr int64_t kWorkerBaseBytes = 200'000'000;
// The same on the host of a worker that computes on a GPU: CUDA's libraries and page-locked buffers. Not
// measured.
inline constexpr int64_t kGpuWorkerBaseBytes = 3'000'000'000;

struct Claim {
  std::string id;
  std::string name;                                 // for messages
  int priority = 0;                                 // larger first
  absl::Time created;                               // then older first
  absl::Time waiting_since = absl::InfinitePast();  // in the queue, of those that wait
  int64_t bytes = 0;                                // sum of predicted peaks plus kWorkerBaseBytes per worker
  bool holds = false;                               // HoldsCapacity(state)
  bool waits = false;                               // QUEUED and wants to run; neither: the claim is ignored
};

struct Verdict {
  bool admitted = false;
  std::string message;  // with numbers: what is needed, free, and who has it or is before it
};

// For so long after it came to wait a job is overtaken by later ones that fit into what it leaves free. Then
// nobody goes before it, or large jobs would starve.
inline constexpr absl::Duration kBackfillWindow = absl::Minutes(5);

// A verdict for each waiting claim, in order. A job that does not fit holds back those after it, but for
// the back-fill above; one that exceeds the whole machine holds back nobody. capacity_bytes 0: unknown, all
// are admitted.
std::map<std::string, Verdict> Admit(absl::Span<const Claim> claims, int64_t capacity_bytes, absl::Time now);

}  // namespace tessera::job

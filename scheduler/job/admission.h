// Who may use the nodes' memory, and this machine's GPUs. Pure: ownership follows from the jobs' states, so
// one pass over all jobs is the whole transaction.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tessera::job {

// Code, libraries and runtime of a worker process, beside its counted tensors, where they were not measured.
inline constexpr int64_t kWorkerBaseBytes = 200'000'000;
// The same on the host of a worker that computes on a GPU: CUDA's libraries and page-locked buffers. Not
// measured.
inline constexpr int64_t kGpuWorkerBaseBytes = 3'000'000'000;

// By name of a node; jobs of one machine name one node. Where there are several, the empty name stands for
// all of them together.
using NodeBytes = std::map<std::string, int64_t>;

// What a plan needs.
struct Demand {
  NodeBytes bytes;  // sum of the predicted peaks and processes of its workers
  int gpus = 0;     // whole ones, however many workers share each; of the machine that `bytes` name
};

struct Claim {
  std::string id;
  std::string name;                                 // for messages
  int priority = 0;                                 // larger first
  absl::Time created;                               // then older first
  absl::Time waiting_since = absl::InfinitePast();  // in the queue, of those that wait
  Demand demand;
  NodeBytes resident;  // of demand.bytes, what its workers have taken already; of a holder
  bool holds = false;  // HoldsCapacity(state)
  bool waits = false;  // QUEUED and wants to run; neither: the claim is ignored
};

struct NodeMemory {
  int64_t for_jobs = 0;    // that jobs may have in all; 0: unknown, all are admitted
  int64_t available = -1;  // now, that nobody uses, jobs or others; -1: unknown
};

struct Verdict {
  bool admitted = false;
  std::string message;  // with numbers: what is needed, free, where, and who has it or is before it
};

// For so long after it came to wait a job is overtaken by later ones that fit into what it leaves free. Then
// nobody goes before it on its nodes, or large jobs would starve.
inline constexpr absl::Duration kBackfillWindow = absl::Minutes(5);

// A verdict for each waiting claim, in order. Free is what jobs may have less what they were promised, and no
// more than is available now less what was promised and not taken yet. A job that does not fit holds back
// those after it, but for the back-fill above; one that exceeds a whole node, or waits for a node that is not
// in `nodes`, holds back nobody. gpus: that jobs may have in all, each of one job at a time; 0: unknown, all
// are admitted. One that lacks nothing but GPUs holds back those that need GPUs alone.
std::map<std::string, Verdict> Admit(absl::Span<const Claim> claims,
                                     const std::map<std::string, NodeMemory>& nodes, absl::Time now,
                                     int gpus = 0);

}  // namespace tessera::job

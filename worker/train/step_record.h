// What each rank says of a step, gathered from all ranks once a step, and what
// they all conclude from it. One small message settles the clip factor, a clean
// stop, a checkpoint, the plan in force, the end of data and who is slow.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/comm/communicator.h"

namespace tessera::worker {

struct StepRecord {
  double squared_norm = 0;     // of the divided gradients of the units this rank owns
  double loss_sum = 0;         // nats over its own targets
  double tokens = 0;           // its own targets
  double plan_generation = 0;  // newest it holds
  double wants_stop = 0;       // 0 or 1, like the next four
  double wants_checkpoint = 0;
  double fenced = 0;
  double end_of_data = 0;
  double checkpoint_written = 0;  // its part of the checkpoint under way is on the disk, or failed
  double compute_seconds = 0;     // own, without waiting for peers
  double selection = 0;           // GradientReducer::SelectionCheck
  double wants_statistics = 0;    // 0 or 1
  double out_of_memory = 0;       // 0 or 1: its part of the step is void
};

struct Agreement {
  double gradient_norm = 0;         // global, before clipping
  double clip_factor = 1;           // gradients are multiplied by it
  double loss = 0;                  // nats per token, mean over all ranks' targets
  int64_t tokens = 0;               // of all ranks
  int64_t plan_generation = 0;      // held by every rank, at least
  bool same_generation = true;      // it is the newest of every rank: all may adopt it
  bool stop = false;                // wished by any rank
  bool checkpoint = false;          // wished by any rank, and none is fenced
  bool fenced = false;              // any rank: no checkpoint may be written any more
  bool end_of_data = false;         // met by any rank
  bool checkpoint_written = false;  // by every rank
  int slowest_rank = 0;
  bool same_selection = true;  // all holders have summed the same elements
  bool statistics = false;     // wished by any rank: layers are measured with the sums of this step
  int short_rank = -1;         // the first that is out of memory; the step is void. -1: none
};

// clip_norm 0: no clipping. Pure; records in rank order.
Agreement Agree(absl::Span<const StepRecord> records, double clip_norm);

absl::StatusOr<std::vector<StepRecord>> GatherRecords(const StepRecord& own, Communicator& all);

}  // namespace tessera::worker

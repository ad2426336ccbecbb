// Memory and traffic of a worker that synchronises a part of its gradients (worker/dropping).
//
// The units of a block that have the same holders form a group; what a group has of a parameter keeps its
// part of the parameter's budget, at least one element. With K kept elements on the worker and E held:
//   gradients  4K: the ring, each group's part from backward to the update. Dense gradients exist in
//              the hook of their parameter only, which is in the measured backward transients
//              Of a sharded worker: of its shards; as they are scattered together, the shards of a group
//              count as the one that keeps most. Whole groups' kept elements take the place of their
//              gradients
//   residual   0, 2E or 4E; not sharded, as what a holder has not sent is nobody else's
//   update     one gradient of at most kSpreadElements, spread out for the optimizer; frozen: the kept
//              parameters and moments of one tensor, gathered
//   traffic    2(k-1)/k * the wire's bytes per kept element of a group with k holders, and what makes the
//   picks the same:
//              a bitmap broadcast, (k-1)/k * E/8, or a sketch all-reduced, 2(k-1)/k * 4 * E/16; sharded, by
//              moments: a bitmap all-reduced, as each holder has the moments of its shard. Sharded: (k-1)
//              times the shards' kept elements, each micro-step. With shares s_w of the workers: a group
//              keeps the largest share of its holders; what a holder does not contribute it gets by broadcast
//              (summing_reducer.h)
//   pairs      holders that pick each for themselves send the values with 4 bytes of index to all others,
//              (k-1) * (4 + the wire's bytes) times the kept elements of what is kept in part. The ring then
//              has room for what all of them may pick together; while a group's are gathered, (k+1) times its
//              kept ones are there beside it, of one group at a time
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/cost.h"

namespace tessera::plan {

inline constexpr int64_t kSpreadElements = 1 << 18;

enum class PickTraffic : uint8_t { kNone, kBitmap, kSketch, kMoments, kPairs };

struct Dropping {
  std::vector<int64_t> kept;  // by parameter
  int residual_bytes_per_element = 0;
  PickTraffic picks = PickTraffic::kNone;
  int64_t refresh = 1;  // steps between picks
  bool freeze_unsent = false;
  std::vector<double> worker_shares;  // of what is kept, what each contributes; empty: all of it
};

// What a group of units has of a parameter, and keeps of it.
struct KeptPart {
  int group = 0;  // numbered by block, then by first unit
  int first_unit = 0;
  int section = 0;  // sharded: the shard, by its holder's place in the group; else 0
  int parameter = 0;
  int64_t elements = 0;
  int64_t kept = 0;
  int64_t room = 0;  // in the ring, elements
};
// Of all groups, in their order, and of their shards. The kept elements of a parameter's parts sum to its
// budget, but for parts that would have none and for groups whose holders contribute less.
std::vector<KeptPart> DivideBudgets(const ModelShape& shape, const MaskPlan& plan, const Dropping& dropping,
                                    bool sharded);

// Bytes: memory.gradients is the ring.
struct DroppedMemory {
  MemoryPrediction memory;
  int64_t residual = 0;
};
DroppedMemory PredictDroppedMemory(const ModelShape& shape, const MaskPlan& plan, int worker,
                                   const StepShape& step, const Dropping& dropping);
int64_t PredictDroppedTraffic(const ModelShape& shape, const MaskPlan& plan, int worker,
                              const StepShape& step, const Dropping& dropping);

}  // namespace tessera::plan

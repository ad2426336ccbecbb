// The change of masks: weights and moments go from those who hold a unit to those who will.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "scheduler/plan/mask_plan.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

// The states of `old` under `after`, whose units are the same (plan::MasksOfPeriod), block by block as
// plan::PredictMoves says: what a rank holds already is copied, the rest comes from a rank that
// plan::MovesBetween names, in one exchange of all ranks per block and kind. `old` is consumed.
// Between two steps, when there are no gradients. All ranks call it together. Unavailable: a peer is
// lost, the states are void. `after` outlives the result, `old`'s plan the call.
absl::StatusOr<std::unique_ptr<UnitStore>> MoveStates(std::unique_ptr<UnitStore> old,
                                                      const plan::MaskPlan& after, Communicator& all);

}  // namespace tessera::worker

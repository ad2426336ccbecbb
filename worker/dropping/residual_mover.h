// The change of masks: what workers have not sent stays with those that still hold it, and goes to the owner
// of the unit from the others, so that nothing is lost and the sum over the workers stays.
#pragma once

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "scheduler/plan/mask_plan.h"
#include "scheduler/plan/model_shape.h"
#include "worker/comm/communicator.h"

namespace tessera::worker {

// residual: of this rank under `before`, the held groups' elements one behind the other, flat (KeptPieces);
// returned: the same under `after`, whose units are the same. What comes to an element is added in the order
// of the ranks, as LoadResidual does, so that a run resumed from a checkpoint of this step has the same bits.
// One exchange of all ranks per block, of what plan::ResidualMovesBetween says. All ranks call it together.
// Unavailable: a peer is lost, the residual is void.
absl::StatusOr<at::Tensor> MoveResidual(const plan::ModelShape& shape, const plan::MaskPlan& before,
                                        const plan::MaskPlan& after, const at::Tensor& residual,
                                        Communicator& all);

}  // namespace tessera::worker

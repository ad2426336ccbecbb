// The method of subnetwork data parallelism on whole tensors in one process.
#pragma once

#include <vector>

#include "scheduler/plan/mask_plan.h"
#include "tests/worker/train/training_rig.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"
#include "worker/train/trainer_options.h"

namespace tessera::worker {

// The weights after the run that `options` describe. Absent elements are zeros in forward masking, whose
// branches then add nothing; a gradient is the holders' sum by the holders' targets.
std::vector<at::Tensor> SimulateDense(const Model& model, const Dataset& data, const plan::MaskPlan& plan,
                                      const TrainerOptions& options);

// Fails the test where the ranks' weights after the rig's run are not those of the simulation, or differ
// where they must be the same bits, or where an element of the model is kept by nobody.
void ExpectLikeDense(const TrainingRig& rig, const std::vector<RankOutcome>& ranks);

}  // namespace tessera::worker

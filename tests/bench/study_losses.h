// The loss of rare tokens apart from that of common ones.
#pragma once

#include "worker/data/dataset.h"
#include "worker/models/model.h"

namespace tessera::worker {

struct RareLosses {
  double rare = 0;    // nats, mean over the rarest tokens that make up a hundredth of the text
  double common = 0;  // over the others
};

// Of a model that all weights of are here. Frequencies are the training data's.
RareLosses MeasureRareLosses(const Model& model, const Weights& weights, const Dataset& train,
                             const Dataset& validation);

}  // namespace tessera::worker

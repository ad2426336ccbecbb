// Samples made up from a seed, of the shape that a model takes: for measuring speed, memory and traffic.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/data/dataset.h"

namespace tessera::worker {

// length: tokens of a sample; not looked at for images. There is nothing in them to be learnt.
std::unique_ptr<Dataset> MakeSyntheticDataset(const ModelInput& input, int64_t samples, int64_t length,
                                              uint64_t seed);

}  // namespace tessera::worker

// Starts a training from somebody's weights.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

// path: a safetensors file, or a folder in the Hugging Face layout (one file, or several and an index). Fills
// this rank's weights, one parameter in memory at a time. Before any is filled InvalidArgument lists
// everything that does not fit the model: missing, unexpected and misshapen tensors.
absl::Status LoadInitialWeights(const std::string& path, UnitStore* store);

}  // namespace tessera::worker

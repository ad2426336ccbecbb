// Starts a training from somebody's weights.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

// path: a safetensors file, or a folder with one or several in the Hugging Face layout. Fills this
// rank's units. NotFound names a parameter that no file has; InvalidArgument one of another shape.
absl::Status LoadInitialWeights(const std::string& path, UnitStore* store);

}  // namespace tessera::worker

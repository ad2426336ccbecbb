// Running statistics of batch norms, taken after training rather than during it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/data/dataset.h"
#include "worker/parallel/runner.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

// sdp.md leaves open where the assembled model's statistics come from; both ways are switches of a job.
enum class NormEstimate : uint8_t {
  kAssembled,  // training samples through the assembled model, as it will be used
  kAveraged,   // through each rank's own blocks of the model; the mean over a block's holders
};

struct NormEstimateOptions {
  NormEstimate from = NormEstimate::kAssembled;
  int64_t batch = 4;       // samples per rank and pass
  int64_t samples = 1024;  // about; at least one pass, at most 16
  uint64_t seed = 1;       // which samples
  ResidualScale residual = ResidualScale::kEvaluation;
};

// Fills the store's buffers; nothing to do for a model without any. All ranks call it together and end with
// the same bits. Unavailable: a peer is lost.
absl::Status EstimateNormStatistics(const UnitStore& store, WeightFetcher* fetcher, World* world,
                                    const Dataset& data, const NormEstimateOptions& options);

}  // namespace tessera::worker

// Validation of the assembled model.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/data/dataset.h"
#include "worker/parallel/runner.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

struct EvaluationOptions {
  int64_t tokens = 65536;  // targets of the data's first samples, rounded up to whole ones; 0: all
  int64_t batch = 4;       // samples per rank and pass
  int64_t targets_per_sample = 256;
  ResidualScale residual = ResidualScale::kEvaluation;
};

struct AssembledEvaluation {
  double loss = 0;                 // nats per target
  int64_t tokens = 0;              // it is the mean of
  std::optional<double> accuracy;  // share of the targets told right; of classifiers
};

// All ranks call it together, each reads its part of the samples, and all get the
// same value. No rank holds more than the block in use beyond its own units.
absl::StatusOr<AssembledEvaluation> EvaluateAssembled(const UnitStore& store, WeightFetcher* fetcher,
                                                      World* world, const Dataset& data,
                                                      const EvaluationOptions& options);

}  // namespace tessera::worker

// Memory and traffic of a worker under a mask plan, before it starts.
// Exact arithmetic for states and buffers; activations from the measured
// ActivationProfile of the shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/plan/mask_plan.h"
#include "scheduler/plan/model_shape.h"

namespace tessera::plan {

struct StepShape {
  int64_t batch = 1;            // samples per worker and micro-step
  int64_t sequence_length = 1;  // tokens per sample
  int accumulation = 1;
  int optimizer_slots = 2;      // fp32 states per element; AdamW 2
  int64_t bytes_per_element = 4;
};

struct PhasePeak {
  std::string name;  // init, forward, backward, reduce, update, evaluate, checkpoint
  int64_t bytes = 0;
};

struct MemoryPrediction {  // bytes of counted tensors
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t buffers = 0;      // token batches, records, staging
  int64_t activations = 0;  // saved for backward at their largest
  int64_t transient = 0;
  std::vector<PhasePeak> phases;
  int64_t peak = 0;
};

MemoryPrediction PredictMemory(const ModelShape& shape, const MaskPlan& plan, int worker, const StepShape& step);

// Bytes a worker sends in one step: for a unit with k holders a ring all-reduce
// sends 2(k-1)/k of its bytes.
int64_t PredictTraffic(const MaskPlan& plan, int worker, int64_t bytes_per_element);

// The same model under plain data parallelism and fully sharded data
// parallelism with as many workers, for comparison.
struct Alternative {
  std::string name;
  int64_t memory = 0;
  int64_t traffic = 0;
};
std::vector<Alternative> Alternatives(const ModelShape& shape, int workers, const StepShape& step);

// Largest coverage at which every worker stays within `limit` bytes; 0 if none.
double NearestCoverage(const ModelShape& shape, MaskRequest request, const StepShape& step, int64_t limit);

}  // namespace tessera::plan

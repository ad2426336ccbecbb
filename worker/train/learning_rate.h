// Learning rate of a step: linear warm-up, then a decay to a final share of the peak. Pure.
#pragma once

#include <cstdint>

namespace tessera::worker {

enum class Decay : uint8_t { kCosine, kLinear, kStep, kConstant };

struct LearningRateSchedule {
  double peak = 1e-3;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  Decay decay = Decay::kCosine;
  double final_ratio = 0.1;  // of the peak, reached at total_steps
};

// kStep falls to the root of final_ratio of the peak after half of what follows the warm-up, and to
// final_ratio after three quarters. step counts from 0. Warm-up step s has peak * (s + 1) / warmup_steps.
double LearningRate(const LearningRateSchedule& schedule, int64_t step);

}  // namespace tessera::worker

#include "worker/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::worker {

double LearningRate(const LearningRateSchedule& schedule, int64_t step) {
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  const double span = static_cast<double>(std::max<int64_t>(1, schedule.total_steps - schedule.warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step - schedule.warmup_steps) / span);
  double share = 1;
  if (schedule.decay == Decay::kCosine) share = 0.5 * (1 + std::cos(std::numbers::pi * progress));
  if (schedule.decay == Decay::kLinear) share = 1 - progress;
  if (schedule.decay == Decay::kConstant) return schedule.peak;
  if (schedule.decay == Decay::kStep) {
    if (progress < 0.5) return schedule.peak;
    return schedule.peak * (progress < 0.75 ? std::sqrt(schedule.final_ratio) : schedule.final_ratio);
  }
  return schedule.peak * (schedule.final_ratio + (1 - schedule.final_ratio) * share);
}

}  // namespace tessera::worker

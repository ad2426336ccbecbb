#include "scheduler/job/progress_estimate.h"

#include <algorithm>

namespace tessera::job {

void ProgressEstimate::Note(int64_t step, absl::Time now) {
  if (step <= last_step_) return;
  last_step_ = step;
  last_time_ = now;
  if (noted_++ % stride_ != 0) return;
  samples_.push_back({step, now});
  if (samples_.size() < kMostSamples) return;
  stride_ *= 2;
  size_t kept = 0;
  for (size_t i = 0; i < samples_.size(); i += 2) samples_[kept++] = samples_[i];
  samples_.resize(kept);
}

std::optional<absl::Duration> ProgressEstimate::Left(int64_t total_steps) const {
  if (samples_.empty() || last_time_ < samples_.front().time + absl::Seconds(1)) return std::nullopt;
  const absl::Time middle = samples_.front().time + (last_time_ - samples_.front().time) / 2;
  // The newest sample that lies in the older half.
  const auto from =
      std::upper_bound(samples_.begin(), samples_.end(), middle,
                       [](absl::Time time, const Sample& sample) { return time < sample.time; }) -
      1;
  if (last_step_ <= from->step || last_time_ <= from->time) return std::nullopt;
  const absl::Duration pace = (last_time_ - from->time) / static_cast<double>(last_step_ - from->step);
  return pace * static_cast<double>(std::max<int64_t>(0, total_steps - last_step_));
}

}  // namespace tessera::job

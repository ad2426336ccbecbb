// How long a run still takes, from when its steps were reached. Pure; not thread-safe.
//
// Times of steps alone would leave out evaluations and checkpoints, so the clock counts: the pace of the
// newer half of the time since the first report, which has both in the proportion in which they occur and
// follows a change.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace tessera::job {

class ProgressEstimate {
 public:
  // Steps that were reached before count nothing.
  void Note(int64_t step, absl::Time now);
  // Until `total_steps`; nothing before reports that are a second apart.
  std::optional<absl::Duration> Left(int64_t total_steps) const;

 private:
  struct Sample {
    int64_t step;
    absl::Time time;
  };
  static constexpr size_t kMostSamples = 128;  // then every second one goes, and of what follows too

  std::vector<Sample> samples_;
  int64_t stride_ = 1;      // every so manieth report is kept
  int64_t noted_ = 0;       // reports
  int64_t last_step_ = -1;  // newest that was noted, also when its sample was passed over
  absl::Time last_time_;
};

}  // namespace tessera::job

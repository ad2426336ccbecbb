// What a job looks like while it runs. Pure: status in, lines out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/cli/table.h"
#include "tessera/v1/job.pb.h"

namespace tessera::cli {

// "RUNNING"; the enum's own name without its prefix.
std::string StateName(v1::JobState state);
Ink StateInk(v1::JobState state);
// SUCCEEDED, FAILED or CANCELLED: nothing will change any more.
bool IsTerminal(v1::JobState state);

// The live display, each line at most `width` columns. `hint` is the last line, if not empty.
std::vector<std::string> RenderProgress(const v1::TrainingJob& job, absl::Time now, const std::string& hint,
                                        int width, const Style& style);

// One line per fact, for pipes and log files. Lives on one thread.
class ProgressLog {
 public:
  // A progress line at most every `interval`, and whenever another twentieth of the run is done.
  explicit ProgressLog(absl::Duration interval = absl::Seconds(2)) : interval_(interval) {}

  // The lines that this status adds to those before: changes of the job's and the workers'
  // states, new notices, validation losses, restarts, and a line of progress when one is due.
  std::vector<std::string> Update(const v1::TrainingJob& job, absl::Time now);

 private:
  std::string ProgressLine(const v1::TrainingJob& job) const;

  absl::Duration interval_;
  std::optional<v1::TrainingJobStatus> last_;
  absl::Time last_progress_ = absl::InfinitePast();
  int64_t last_step_ = -1;
  int last_twentieth_ = 0;
  std::string last_shared_;
};

}  // namespace tessera::cli

// How `tessera` ends. Documented in `tessera --help`.
#pragma once

#include "tessera/v1/job.pb.h"

namespace tessera::cli {

enum ExitCode : int {
  kSucceeded = 0,
  kFailed = 1,
  kUsage = 2,  // wrong arguments or an invalid job
  kCancelled = 3,
  kSuspended = 4,
  kUnreachable = 5,  // no service, or it refuses the token
  kInterrupted = 130,
};

// Of a job that was watched to its end. `state` is SUSPENDED or terminal.
inline ExitCode ExitCodeOf(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return kSucceeded;
    case v1::JOB_STATE_CANCELLED:
      return kCancelled;
    case v1::JOB_STATE_SUSPENDED:
      return kSuspended;
    default:
      return kFailed;
  }
}

}  // namespace tessera::cli

#include "worker/control/exit_code.h"

namespace tessera::worker {

v1::WorkerOutcome OutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return v1::WORKER_OUTCOME_PEER_LOST;
    case absl::StatusCode::kResourceExhausted:
      return v1::WORKER_OUTCOME_OUT_OF_MEMORY;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
      return v1::WORKER_OUTCOME_INVALID;
    default:
      return v1::WORKER_OUTCOME_APPLICATION;
  }
}

ExitCode ExitCodeOf(v1::WorkerOutcome outcome) {
  switch (outcome) {
    case v1::WORKER_OUTCOME_COMPLETED:
      return kExitCompleted;
    case v1::WORKER_OUTCOME_STOPPED:
      return kExitStopped;
    case v1::WORKER_OUTCOME_PEER_LOST:
      return kExitPeerLost;
    case v1::WORKER_OUTCOME_OUT_OF_MEMORY:
      return kExitOutOfMemory;
    case v1::WORKER_OUTCOME_INVALID:
      return kExitInvalid;
    default:
      return kExitApplication;
  }
}

}  // namespace tessera::worker

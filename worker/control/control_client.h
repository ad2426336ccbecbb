// The worker's end of its stream to the scheduler. Torch-free.
//
// Reconnects with back-off whenever the stream breaks, reading a `file:` endpoint anew each
// time; training never waits for it. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::worker {

struct ControlOptions {
  // "host:port", "https://host:port", or "file:<endpoint.json>" whose key "grpc" says it
  std::string scheduler;
  std::string token_file;  // empty: no token
  std::string ca_file;     // of an https scheduler
  v1::WorkerIdentity identity;
  std::string metrics_address;  // of the worker's own /metrics
  absl::Duration first_backoff = absl::Milliseconds(200);
  absl::Duration longest_backoff = absl::Seconds(5);
  absl::Duration grace = absl::Minutes(10);                    // without a scheduler: then it is given up
  absl::Duration confirmation = absl::Seconds(15);             // longest wait for that of a written Finished
  absl::Duration progress_interval = absl::Milliseconds(500);  // least time between two Progress messages
};

// What the scheduler asks of a running worker. Called on the client's thread; must not block.
struct ControlHandlers {
  absl::AnyInvocable<void(const v1::Stop&)> stop;
  absl::AnyInvocable<void()> checkpoint;
  absl::AnyInvocable<void(const v1::Plan&)> plan;
  absl::AnyInvocable<void()> statistics;
  absl::AnyInvocable<void()> scheduler_lost;  // away for longer than the grace
};

class ControlClient {
 public:
  static std::unique_ptr<ControlClient> Start(const ControlOptions& options, ControlHandlers handlers);
  virtual ~ControlClient() = default;  // ends the stream

  // The first assignment. DeadlineExceeded says why none came; PermissionDenied and the like as the
  // scheduler answered when it refuses this worker for good.
  virtual absl::StatusOr<v1::Assignment> WaitForAssignment(absl::Duration timeout) = 0;
  // Progress is thinned: the newest is sent at most once per interval. The others are all delivered,
  // in order, as soon as there is a scheduler.
  virtual void Send(const v1::WorkerUp& message) = 0;
  // Sends `finished` and waits until the scheduler has closed the stream after it, for the grace at most.
  virtual absl::Status Finish(const v1::Finished& finished) = 0;
};

}  // namespace tessera::worker

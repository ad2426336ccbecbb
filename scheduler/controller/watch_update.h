// What all watchers of a job are told at one time. It holds the whole job, so it is made once and shared.
#pragma once

#include <memory>
#include <string>

#include "absl/base/call_once.h"
#include "tessera/v1/api.pb.h"

namespace tessera::scheduler {

class WatchUpdate {
 public:
  // The values of the job's environment are hidden, see spec::HideEnvironment.
  explicit WatchUpdate(v1::WatchTrainingJobResponse message);

  const v1::WatchTrainingJobResponse& message() const { return message_; }
  // As JSON, written when it is first asked for. Thread-safe.
  const std::string& Json() const;

 private:
  v1::WatchTrainingJobResponse message_;
  mutable absl::once_flag written_;
  mutable std::string json_;
};

using SharedUpdate = std::shared_ptr<const WatchUpdate>;

}  // namespace tessera::scheduler

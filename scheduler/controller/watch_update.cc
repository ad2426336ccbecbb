#include "scheduler/controller/watch_update.h"

#include <utility>

#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/validate.h"

namespace tessera::scheduler {

WatchUpdate::WatchUpdate(v1::WatchTrainingJobResponse message) : message_(std::move(message)) {
  if (message_.has_training_job()) spec::HideEnvironment(message_.mutable_training_job());
}

const std::string& WatchUpdate::Json() const {
  absl::call_once(written_, [this] { json_ = spec::ToJson(message_); });
  return json_;
}

}  // namespace tessera::scheduler

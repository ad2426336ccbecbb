// Where the doors report each finished call.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tessera::services {

class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  // `method` is one of the API's rpc names ("JobService.GetTrainingJob") or a fixed
  // word, so that label values stay few. Any thread.
  virtual void RequestDone(const std::string& protocol, const std::string& method, absl::StatusCode code,
                           absl::Duration took) = 0;
};

}  // namespace tessera::services

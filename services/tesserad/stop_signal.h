// SIGTERM, SIGINT and SIGHUP as something to wait for.
#pragma once

#include "absl/time/time.h"

namespace tessera::services {

// Handlers, not a mask or ignored signals: programs that are started inherit nothing.
// One per process.
class StopSignal {
 public:
  StopSignal();
  // True when a signal came within `patience`. A second signal ends the process at once.
  bool Wait(absl::Duration patience);
};

}  // namespace tessera::services

// Tells the scheduler what this rank does while it reports nothing: the rank for which all others wait
// is thereby known by name. Torch-free.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "worker/control/control_client.h"
#include "worker/train/report_sink.h"

namespace tessera::worker {

// Looks on a thread of its own, which ends with it. As a ReportSink it learns of progress.
class StandstillWatch : public ReportSink {
 public:
  // waiting: the collective this rank waits in, empty when in none; called from the watch's thread.
  // Told after `patience` without progress and again whenever the answer changes. `client` outlives it.
  static std::unique_ptr<StandstillWatch> Start(ControlClient* client,
                                                absl::AnyInvocable<std::string()> waiting,
                                                absl::Duration patience = absl::Seconds(5));
};

}  // namespace tessera::worker

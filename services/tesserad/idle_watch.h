// Whether anybody still needs the daemon.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "scheduler/store/job_store.h"
#include "services/api/request_observer.h"

namespace tessera::services {

// Thread-safe. Passes each report on to `next`.
class IdleWatch : public RequestObserver {
 public:
  IdleWatch(scheduler::JobStore* store, RequestObserver* next) : store_(store), next_(next) {}
  void RequestDone(const std::string& protocol, const std::string& method, absl::StatusCode code,
                   absl::Duration took) override;
  // No call for `patience` before `now`, and every job is finished or suspended.
  bool IsIdle(absl::Time now, absl::Duration patience) const;

 private:
  scheduler::JobStore* const store_;
  RequestObserver* const next_;
  mutable absl::Mutex mutex_;
  absl::Time last_call_ ABSL_GUARDED_BY(mutex_) = absl::Now();
};

}  // namespace tessera::services

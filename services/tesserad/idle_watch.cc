#include "services/tesserad/idle_watch.h"

#include "services/api/job_logs.h"

namespace tessera::services {

void IdleWatch::RequestDone(const std::string& protocol, const std::string& method, absl::StatusCode code,
                            absl::Duration took) {
  {
    absl::MutexLock lock(&mutex_);
    last_call_ = absl::Now();
  }
  next_->RequestDone(protocol, method, code, took);
}

bool IdleWatch::IsIdle(absl::Time now, absl::Duration patience) const {
  {
    absl::MutexLock lock(&mutex_);
    if (now - last_call_ < patience) return false;
  }
  const auto page = store_->List("-", 0, "");
  if (!page.ok()) return false;
  for (const scheduler::JobRecord& record : page->jobs) {
    const v1::JobState state = record.job.status().state();
    if (!IsTerminal(state) && state != v1::JOB_STATE_SUSPENDED) return false;
  }
  return true;
}

}  // namespace tessera::services

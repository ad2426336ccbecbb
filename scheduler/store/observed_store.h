// A job store that says what was written.
#pragma once

#include <functional>
#include <memory>

#include "scheduler/store/job_store.h"

namespace tessera::scheduler {

// `changed` is called after each write that succeeded, on the writer's thread, and must not block. `inner`
// outlives it.
std::unique_ptr<JobStore> MakeObservedStore(JobStore* inner, std::function<void(const JobKey&)> changed);

}  // namespace tessera::scheduler

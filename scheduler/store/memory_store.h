#pragma once

#include <memory>

#include "scheduler/store/job_store.h"

namespace tessera::scheduler {

// Nothing survives the process; for tests and throw-away daemons.
std::unique_ptr<JobStore> MakeMemoryStore();

}  // namespace tessera::scheduler

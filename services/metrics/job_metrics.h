// Series of jobs and their workers, read from the store when somebody asks. Nothing is
// kept, so the series of a finished job vanish by themselves.
#pragma once

#include <vector>

#include "prometheus/collectable.h"
#include "scheduler/store/job_store.h"

namespace tessera::services {

class JobMetrics : public prometheus::Collectable {
 public:
  static constexpr int kMaxWorkers = 2000;  // series of further workers are left out

  explicit JobMetrics(scheduler::JobStore* store) : store_(store) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  scheduler::JobStore* const store_;
};

}  // namespace tessera::services

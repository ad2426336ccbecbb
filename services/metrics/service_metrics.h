// The scheduler's and the doors' counters, and the exposition of everything.
// Names, units and labels are a contract with dashboards: a test lists them.
#pragma once

#include <memory>
#include <string>

#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "scheduler/controller/controller.h"
#include "scheduler/store/job_store.h"
#include "services/api/request_observer.h"
#include "services/metrics/job_metrics.h"
#include "services/metrics/node_metrics.h"

namespace tessera::services {

// Thread-safe.
class ServiceMetrics : public scheduler::ControllerMetrics, public RequestObserver {
 public:
  // Job and worker series are read from `store`, which outlives it, at each Text().
  // Those of nodes from `registry`, which may be null.
  ServiceMetrics(scheduler::JobStore* store, const std::string& version,
                 std::shared_ptr<const scheduler::NodeRegistry> registry = nullptr);

  void JobStateChanged(const std::string& from, const std::string& to) override;
  void QueueWait(absl::Duration wait) override;
  void TimeToFirstStep(absl::Duration wait) override;
  void PlanMade(absl::Duration took) override;
  void WorkerFailed(const std::string& failure_class) override;
  void PlanRecomputed(const std::string& trigger, const std::string& result) override;
  void PlanApplied(absl::Duration lag) override;

  void RequestDone(const std::string& protocol, const std::string& method, absl::StatusCode code,
                   absl::Duration took) override;

  // Prometheus' text format.
  std::string Text() const;

 private:
  prometheus::Registry registry_;
  JobMetrics jobs_;
  NodeMetrics nodes_;
  prometheus::Family<prometheus::Counter>& submissions_;
  prometheus::Histogram& queue_wait_;
  prometheus::Histogram& first_step_;
  prometheus::Histogram& plan_;
  prometheus::Family<prometheus::Histogram>& requests_;
  prometheus::Family<prometheus::Counter>& failures_;
  prometheus::Family<prometheus::Counter>& recomputations_;
  prometheus::Histogram& apply_lag_;
};

}  // namespace tessera::services

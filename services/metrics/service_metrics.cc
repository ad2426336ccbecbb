#include "services/metrics/service_metrics.h"

#include <utility>

#include "absl/time/clock.h"
#include "prometheus/text_serializer.h"

namespace tessera::services {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildHistogram;

const prometheus::Histogram::BucketBoundaries kWaits = {0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400, 86400};
const prometheus::Histogram::BucketBoundaries kPlans = {0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60};
const prometheus::Histogram::BucketBoundaries kRequests = {0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30};

}  // namespace

ServiceMetrics::ServiceMetrics(scheduler::JobStore* store, const std::string& version,
                               std::shared_ptr<const scheduler::NodeRegistry> registry)
    : jobs_(store),
      nodes_(std::move(registry)),
      submissions_(BuildCounter()
                       .Name("tessera_job_submissions_total")
                       .Help("Submitted jobs by result: accepted, or the code of the refusal.")
                       .Register(registry_)),
      queue_wait_(BuildHistogram()
                      .Name("tessera_job_queue_wait_seconds")
                      .Help("Time from submission to the start of workers.")
                      .Register(registry_)
                      .Add({}, kWaits)),
      first_step_(BuildHistogram()
                      .Name("tessera_job_time_to_first_step_seconds")
                      .Help("Time from the start of workers to their first step.")
                      .Register(registry_)
                      .Add({}, kWaits)),
      plan_(BuildHistogram()
                .Name("tessera_plan_seconds")
                .Help("Time to describe a model and plan for it.")
                .Register(registry_)
                .Add({}, kPlans)),
      requests_(BuildHistogram()
                    .Name("tessera_api_request_duration_seconds")
                    .Help("Time to answer a call; of a stream over HTTP, to open it.")
                    .Register(registry_)),
      failures_(BuildCounter()
                    .Name("tessera_worker_failures_total")
                    .Help("Workers that ended otherwise than asked, by class of failure.")
                    .Register(registry_)),
      recomputations_(BuildCounter()
                          .Name("tessera_plan_recomputations_total")
                          .Help("Gradient budgets made anew while a job trains.")
                          .Register(registry_)),
      apply_lag_(BuildHistogram()
                     .Name("tessera_plan_apply_lag_seconds")
                     .Help("Time from a published plan to its being in force on all workers.")
                     .Register(registry_)
                     .Add({}, kPlans)) {
  prometheus::BuildGauge()
      .Name("tessera_build_info")
      .Help("Constant 1; the label says which version runs.")
      .Register(registry_)
      .Add({{"version", version}})
      .Set(1);
}

void ServiceMetrics::JobStateChanged(const std::string& from, const std::string& to) {
  // The gauge of states is counted from the store, which also knows of restarts.
}

void ServiceMetrics::QueueWait(absl::Duration wait) { queue_wait_.Observe(absl::ToDoubleSeconds(wait)); }
void ServiceMetrics::TimeToFirstStep(absl::Duration wait) {
  first_step_.Observe(absl::ToDoubleSeconds(wait));
}
void ServiceMetrics::PlanMade(absl::Duration took) { plan_.Observe(absl::ToDoubleSeconds(took)); }

void ServiceMetrics::WorkerFailed(const std::string& failure_class) {
  failures_.Add({{"class", failure_class}}).Increment();
}

void ServiceMetrics::PlanRecomputed(const std::string& trigger, const std::string& result) {
  recomputations_.Add({{"trigger", trigger}, {"result", result}}).Increment();
}

void ServiceMetrics::PlanApplied(absl::Duration lag) { apply_lag_.Observe(absl::ToDoubleSeconds(lag)); }

void ServiceMetrics::RequestDone(const std::string& protocol, const std::string& method,
                                 absl::StatusCode code, absl::Duration took) {
  const std::string name = absl::StatusCodeToString(code);
  requests_.Add({{"protocol", protocol}, {"method", method}, {"code", name}}, kRequests)
      .Observe(absl::ToDoubleSeconds(took));
  if (method == "JobService.CreateTrainingJob") {
    submissions_.Add({{"result", code == absl::StatusCode::kOk ? "accepted" : name}}).Increment();
  }
}

std::string ServiceMetrics::Text() const {
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  for (prometheus::MetricFamily& family : jobs_.Collect()) families.push_back(std::move(family));
  for (prometheus::MetricFamily& family : nodes_.Collect(absl::Now())) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace tessera::services

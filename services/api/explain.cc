#include "services/api/explain.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/quantity.h"
#include "services/api/job_logs.h"

namespace tessera::services {
namespace {

constexpr int kWarningsShown = 5;

class Reasons {
 public:
  explicit Reasons(v1::ExplainTrainingJobResponse* response) : response_(response) {}
  template <typename... Args>
  void Add(const absl::FormatSpec<Args...>& format, const Args&... args) {
    response_->add_reasons(absl::StrFormat(format, args...));
  }

 private:
  v1::ExplainTrainingJobResponse* response_;
};

std::string Bytes(int64_t bytes) { return spec::FormatBytes(bytes); }

// Nodes, links and batches, where they are not all alike.
void ExplainPlaces(const v1::Plan& plan, Reasons* reasons) {
  std::vector<std::string> nodes, batches;
  const v1::WorkerPlan* slowest = nullptr;  // to send
  bool unlike = false;
  for (const v1::WorkerPlan& worker : plan.workers()) {
    nodes.push_back(worker.node());
    batches.push_back(absl::StrCat(worker.batch()));
    unlike |= worker.batch() != plan.workers(0).batch();
    if (slowest == nullptr || worker.communication_seconds() > slowest->communication_seconds())
      slowest = &worker;
  }
  if (!plan.links().empty()) {
    reasons->Add("It was made from %d measured links; ranks follow their round-trip times: %s",
                 plan.links_size(), absl::StrJoin(nodes, ", "));
  }
  if (slowest != nullptr && slowest->communication_seconds() > 0) {
    reasons->Add(
        "Worker %d has the slowest way to the others: it holds %.0f %% of the maskable elements and sends "
        "%s in %.3g s per step",
        slowest->rank(), 100 * slowest->coverage(), Bytes(slowest->traffic_bytes_per_step()),
        slowest->communication_seconds());
  }
  if (unlike)
    reasons->Add("The batch is divided by what each worker can do: %s", absl::StrJoin(batches, ", "));
}

void ExplainPlan(const v1::TrainingJob& job, const v1::Plan& plan, Reasons* reasons) {
  const v1::PlanInputs& inputs = plan.inputs();
  reasons->Add("Plan %d: %s", plan.generation(), plan.reason().empty() ? "no reason given" : plan.reason());
  int least_holders = inputs.workers();
  for (const v1::PlanUnit& unit : plan.units()) {
    if (!unit.always_on()) least_holders = std::min(least_holders, unit.holders_size());
  }
  reasons->Add(
      "Coverage %.3g: each of %d workers holds that share (of unlike ones the mean) of the %d maskable of %d "
      "elements; every unit has "
      "at "
      "least %d holders (asked: %d)",
      inputs.coverage(), inputs.workers(), plan.maskable_elements(), plan.total_elements(), least_holders,
      inputs.min_holders());
  reasons->Add("Spectral gap of the mask graph: %.4f (asked: %.4f)", plan.spectral_gap(), inputs.min_gap());
  int64_t memory = 0;
  int64_t traffic = 0;
  for (const v1::WorkerPlan& worker : plan.workers()) {
    memory = std::max(memory, worker.memory().peak());
    traffic = std::max(traffic, worker.traffic_bytes_per_step());
  }
  const int64_t limit = job.spec().resources().memory_limit_bytes();
  reasons->Add("Predicted peak memory of the largest worker: %s (limit: %s); traffic: %s per step",
               Bytes(memory), limit > 0 ? Bytes(limit) : "what the machine has", Bytes(traffic));
  ExplainPlaces(plan, reasons);
  if (!plan.activation_checkpointing_reason().empty()) {
    reasons->Add("Activation checkpointing is %s", plan.activation_checkpointing_reason());
  }
  if (!plan.dropping().reason().empty()) reasons->Add("Gradient dropping: %s", plan.dropping().reason());
  for (const v1::PlanAlternative& other : plan.alternatives()) {
    reasons->Add("%s would need %s and send %s per step", absl::AsciiStrToUpper(other.name()),
                 Bytes(other.memory_bytes()), Bytes(other.traffic_bytes_per_step()));
  }
  if (!plan.fit().empty() && plan.fit() != "fits") {
    reasons->Add("Fit: %s", plan.fit());
    if (plan.remedies().empty() && plan.nearest_coverage() > 0)
      reasons->Add("The largest coverage that fits is %.3g", plan.nearest_coverage());
    for (const std::string& remedy : plan.remedies()) reasons->Add("It would fit with %s", remedy);
  }
}

void ExplainWorkers(const v1::TrainingJobStatus& status, Reasons* reasons) {
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.last_error().empty()) continue;
    reasons->Add("Worker %d on %s, %s at step %d: %s", worker.rank(),
                 worker.node().empty() ? "?" : worker.node(), worker.state(), worker.step(),
                 worker.last_error());
  }
  const v1::WorkerStatus* most = nullptr;  // memory, as measured
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.memory_peak_bytes() <= 0 || worker.memory_predicted_bytes() <= 0) continue;
    if (most == nullptr || worker.memory_peak_bytes() > most->memory_peak_bytes()) most = &worker;
  }
  if (most != nullptr) {
    reasons->Add("Worker %d needed %s of memory at its peak so far, planned were %s (%+.1f %%)", most->rank(),
                 Bytes(most->memory_peak_bytes()), Bytes(most->memory_predicted_bytes()),
                 100.0 * (static_cast<double>(most->memory_peak_bytes()) /
                              static_cast<double>(most->memory_predicted_bytes()) -
                          1));
  }
  const auto by_compute = [](const auto& a, const auto& b) {
    return a.compute_seconds() < b.compute_seconds();
  };
  if (status.workers_size() > 1) {
    const auto [fast, slow] =
        std::minmax_element(status.workers().begin(), status.workers().end(), by_compute);
    if (fast->compute_seconds() > 0 && slow->compute_seconds() > 1.2 * fast->compute_seconds()) {
      reasons->Add("Worker %d is the slowest: it computes %.3f s per step, worker %d %.3f s", slow->rank(),
                   slow->compute_seconds(), fast->rank(), fast->compute_seconds());
    }
  }
}

int64_t PlannedBytes(const v1::TrainingJob& job) {
  int64_t bytes = 0;
  for (const v1::WorkerStatus& worker : job.status().workers()) bytes += worker.memory_predicted_bytes();
  return bytes;
}

// What has to end before it can start, soonest first, and what would let it start with less.
void ExplainWaiting(const v1::TrainingJob& job, const std::vector<v1::TrainingJob>& others,
                    Reasons* reasons) {
  reasons->Add("It waits with priority %d for %d workers, whose tensors need %s in all",
               job.spec().priority(), job.status().workers_size(), Bytes(PlannedBytes(job)));
  std::vector<const v1::TrainingJob*> holders;
  for (const v1::TrainingJob& other : others) {
    const v1::JobState state = other.status().state();
    if (other.uid() != job.uid() && state >= v1::JOB_STATE_PLANNED && state <= v1::JOB_STATE_DEGRADED)
      holders.push_back(&other);
  }
  const auto left = [](const v1::TrainingJob* other) {
    return other->status().has_eta() ? other->status().eta().seconds() : std::numeric_limits<int64_t>::max();
  };
  std::stable_sort(holders.begin(), holders.end(),
                   [&](const auto* a, const auto* b) { return left(a) < left(b); });
  for (const v1::TrainingJob* other : holders) {
    const v1::TrainingJobStatus& status = other->status();
    const bool near = other->namespace_() == job.namespace_();
    reasons->Add("Job %s gives back %s of tensors when it ends, %s (step %d of %d)",
                 near ? other->name() : absl::StrCat(other->namespace_(), "/", other->name()),
                 Bytes(PlannedBytes(*other)),
                 status.has_eta() ? absl::StrCat("in about ", (status.eta().seconds() + 59) / 60, " min")
                                  : std::string("it is not yet known when"),
                 status.step(), status.total_steps());
  }
  if (!holders.empty()) {
    const v1::TrainingJob& first = *holders.front();
    reasons->Add("`tessera%s suspend %s` frees its memory now; it resumes from a checkpoint",
                 first.namespace_() == job.namespace_() ? "" : absl::StrCat(" -n ", first.namespace_()),
                 first.name());
  }
}

// What the workers of a group that does not train yet are at.
void ExplainStarting(const v1::TrainingJobStatus& status, Reasons* reasons) {
  for (const v1::WorkerStatus& worker : status.workers()) {
    reasons->Add("Worker %d: %s", worker.rank(), worker.state().empty() ? "not started" : worker.state());
  }
}

// Of a job at which nothing happens by itself: what its user can do.
void ExplainNext(const v1::TrainingJob& job, Reasons* reasons) {
  const v1::TrainingJobStatus& status = job.status();
  switch (status.state()) {
    case v1::JOB_STATE_SUSPENDED:
      reasons->Add("It holds no memory; `tessera resume %s` lets it %s", job.name(),
                   status.checkpoint().empty() && job.spec().checkpoint().resume_from().empty()
                       ? "begin again, as it has no checkpoint"
                       : "go on from its newest checkpoint");
      break;
    case v1::JOB_STATE_FAILED:
    case v1::JOB_STATE_CANCELLED:
      reasons->Add("`tessera retry %s` submits it again, %s", job.name(),
                   status.checkpoint().empty() ? "from the beginning" : "from " + status.checkpoint());
      break;
    case v1::JOB_STATE_SUCCEEDED:
      if (!status.exported_model().empty()) reasons->Add("The model is in %s", status.exported_model());
      break;
    default:
      break;
  }
}

}  // namespace

v1::ExplainTrainingJobResponse ExplainJob(const v1::TrainingJob& job, const std::vector<v1::Plan>& plans,
                                          const std::vector<v1::Event>& events,
                                          const std::vector<v1::TrainingJob>& others) {
  v1::ExplainTrainingJobResponse response;
  Reasons reasons(&response);
  const v1::TrainingJobStatus& status = job.status();
  response.set_summary(absl::StrCat("Job ", job.name(), " is ", spec::EnumName(status.state()),
                                    status.reason().empty() ? "" : absl::StrCat(" (", status.reason(), ")"),
                                    status.message().empty() ? "" : ": ", status.message()));
  if (status.total_steps() > 0) {
    reasons.Add("Step %d of %d (%.1f %%), %d tokens seen, epoch %d, %d restarts", status.step(),
                status.total_steps(),
                100.0 * static_cast<double>(status.step()) / static_cast<double>(status.total_steps()),
                status.tokens(), status.epoch(), status.restarts());
  }
  if (status.state() == v1::JOB_STATE_QUEUED) ExplainWaiting(job, others, &reasons);
  if (status.state() == v1::JOB_STATE_STARTING) ExplainStarting(status, &reasons);
  ExplainNext(job, &reasons);
  if (status.has_retry_time() && !IsTerminal(status.state())) {
    reasons.Add("The next try starts at %s", spec::FormatTimestamp(status.retry_time()));
  }
  ExplainWorkers(status, &reasons);
  if (!plans.empty()) {
    ExplainPlan(job, plans.back(), &reasons);
    *response.mutable_plan() = plans.back();
  }
  for (const std::string& notice : status.notices()) reasons.Add("%s", notice);
  int shown = 0;
  for (auto event = events.rbegin(); event != events.rend() && shown < kWarningsShown; ++event) {
    if (event->type() != "Warning") continue;
    reasons.Add("%s %s: %s", spec::FormatTimestamp(event->time()), event->reason(), event->message());
    ++shown;
  }
  return response;
}

}  // namespace tessera::services

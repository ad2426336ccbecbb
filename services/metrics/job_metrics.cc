#include "services/metrics/job_metrics.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "prometheus/metric_family.h"
#include "proto/tessera/v1/job_codec.h"
#include "services/api/job_logs.h"
#include "services/metrics/families.h"

namespace tessera::services {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;

void AddWorker(const v1::TrainingJob& job, const v1::WorkerStatus& worker, Families* out) {
  const v1::TrainingJobStatus& status = job.status();
  const std::vector<ClientMetric::Label> labels = {
      {"namespace", job.namespace_()}, {"job", job.name()}, {"rank", absl::StrCat(worker.rank())}};
  const auto memory = [&](const char* kind, int64_t bytes) {
    auto with_kind = labels;
    with_kind.push_back({"kind", kind});
    out->Gauge("tessera_worker_memory_bytes", "Tensor bytes of a worker; resident: of its process.",
               static_cast<double>(bytes), with_kind);
  };
  out->Gauge("tessera_worker_step", "Steps done.", static_cast<double>(worker.step()), labels);
  out->Gauge("tessera_worker_loss", "Training loss of the newest step, over all workers.", status.loss(),
             labels);
  out->Counter("tessera_worker_tokens_total", "Tokens trained on by all workers of the job.",
               static_cast<double>(status.tokens()), labels);
  out->Gauge("tessera_worker_last_step_duration_seconds", "Duration of the newest step.",
             status.step_seconds(), labels);
  out->Gauge("tessera_worker_compute_duration_seconds", "The worker's own computing in the newest step.",
             worker.compute_seconds(), labels);
  memory("allocated", worker.memory_used_bytes());
  memory("peak", worker.memory_peak_bytes());
  memory("predicted", worker.memory_predicted_bytes());
  memory("resident", worker.resident_bytes());
  if (worker.memory_reserved_bytes() > 0) {
    memory("reserved", worker.memory_reserved_bytes());
    out->Gauge("tessera_worker_fragmentation_ratio",
               "Share of the allocator's free bytes that is not certainly one block.",
               worker.fragmentation_ratio(), labels);
  }
  if (worker.memory_peak_bytes() > 0 && worker.memory_predicted_bytes() > 0) {
    out->Gauge("tessera_worker_memory_prediction_error_ratio", "Peak tensor bytes, measured / predicted - 1.",
               static_cast<double>(worker.memory_peak_bytes()) /
                       static_cast<double>(worker.memory_predicted_bytes()) -
                   1,
               labels);
  }
  out->Gauge("tessera_worker_mask_coverage_ratio", "Share of the maskable parameters held.",
             worker.coverage(), labels);
  const int64_t in_force = worker.plan_generation() > 0 ? worker.plan_generation() : status.plan_generation();
  out->Gauge("tessera_worker_plan_generation", "Plan in force.", static_cast<double>(in_force), labels);
  out->Gauge("tessera_worker_plan_generation_skew", "Plans by which the worker is behind the newest.",
             static_cast<double>(status.plan_generation() - in_force), labels);
  if (worker.gradient_kept_ratio() > 0) {
    out->Gauge("tessera_worker_gradient_kept_ratio", "Share of the gradient elements synchronised.",
               worker.gradient_kept_ratio(), labels);
  }
  // Every step sends what the plan says; the worker's own endpoint has the counted total.
  out->Counter(
      "tessera_worker_sync_bytes_total", "Bytes sent for synchronisation: steps times bytes per step.",
      static_cast<double>(worker.traffic_bytes_per_step()) * static_cast<double>(worker.step()), labels);
}

}  // namespace

std::vector<MetricFamily> JobMetrics::Collect() const {
  const auto page = store_->List("-", 0, "");
  if (!page.ok()) return {};
  std::map<int, int> by_state;
  const auto* states = google::protobuf::GetEnumDescriptor<v1::JobState>();
  for (int i = 0; i < states->value_count(); ++i) {
    if (states->value(i)->number() != 0) by_state[states->value(i)->number()] = 0;
  }
  Families out;
  int workers = 0;
  for (const scheduler::JobRecord& record : page->jobs) {
    const v1::TrainingJobStatus& status = record.job.status();
    if (status.state() != 0) ++by_state[status.state()];
    if (IsTerminal(status.state())) continue;
    for (const v1::WorkerStatus& worker : status.workers()) {
      if (++workers <= kMaxWorkers) AddWorker(record.job, worker, &out);
    }
  }
  for (const auto& [state, count] : by_state) {
    out.Gauge("tessera_jobs", "Jobs by state.", count, {{"state", spec::EnumName(states, state)}});
  }
  return out.Take();
}

}  // namespace tessera::services

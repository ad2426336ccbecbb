#include "worker/train/worker_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "worker/profile/allocator_profile.h"

namespace tessera::worker {
namespace {

double Now() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }
prometheus::Histogram::BucketBoundaries Durations() {
  return {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
}

// The series of one worker; their labels are known once it has its assignment.
class Series {
 public:
  Series(prometheus::Registry& registry, const WorkerMetricsOptions& options)
      : registry_(registry),
        parameters_(options.parameters),
        labels_{{"job", options.job}, {"namespace", options.ns}, {"rank", absl::StrCat(options.rank)}},
        step_(Gauge("tessera_worker_step", "Steps finished.")),
        last_step_(Gauge("tessera_worker_last_step_timestamp_seconds", "When the last step ended.")),
        loss_(Gauge("tessera_worker_loss", "Training loss of the last step, nats per token over all ranks.")),
        generation_(Gauge("tessera_worker_plan_generation", "Plan in force.")),
        kept_(Gauge("tessera_worker_gradient_kept_ratio", "Share of the gradient elements synchronised.")),
        coverage_(Gauge("tessera_worker_mask_coverage_ratio", "Share of the maskable elements held.")),
        checkpoint_(Gauge("tessera_worker_checkpoint_last_success_timestamp_seconds",
                          "When the last checkpoint was complete.")),
        allocated_(Memory("allocated")),
        peak_(Memory("peak")),
        predicted_(Memory("predicted")),
        reserved_(Memory("reserved")),
        fragmentation_(Gauge("tessera_worker_fragmentation_ratio",
                             "Share of the allocator's free bytes that is not certainly one block.")),
        tokens_(Counter("tessera_worker_tokens_total", "Tokens trained on by all ranks.")),
        traffic_(Counter("tessera_worker_sync_bytes_total", "Bytes this rank sent in collectives.")),
        duration_(Histogram("tessera_worker_step_duration_seconds", "Whole step.")),
        sync_(Histogram("tessera_worker_sync_duration_seconds", "Part of a step spent waiting for peers.")) {
    coverage_.Set(options.coverage);
    predicted_.Set(static_cast<double>(options.predicted_memory_bytes));
  }

  void Step(const StepReport& report) {
    step_.Set(static_cast<double>(report.step));
    last_step_.Set(Now());
    loss_.Set(report.loss);
    generation_.Set(static_cast<double>(report.plan_generation));
    kept_.Set(report.gradient_kept_ratio);
    allocated_.Set(static_cast<double>(report.memory_used_bytes));
    peak_.Set(static_cast<double>(report.memory_peak_bytes));
    if (const double now = Now(); now - profiled_ >= 1) {
      const AllocatorStatistics allocator = ProfileAllocator();
      reserved_.Set(static_cast<double>(allocator.reserved));
      fragmentation_.Set(allocator.fragmentation());
      profiled_ = now;
    }
    tokens_.Increment(static_cast<double>(report.step_tokens));
    traffic_.Increment(static_cast<double>(report.traffic_bytes));
    duration_.Observe(report.step_seconds);
    sync_.Observe(report.sync_seconds);
  }
  void Checkpoint() { checkpoint_.Set(Now()); }
  // By group of layers: as many series as a block has parameters, and those outside the blocks.
  void Budgets(const std::vector<int64_t>& kept) {
    std::map<std::string, std::pair<double, double>> groups;
    for (size_t p = 0; p < std::min(kept.size(), parameters_.size()); ++p) {
      auto& [kept_in, elements] = groups[LayerGroupOf(parameters_[p].first)];
      kept_in += static_cast<double>(kept[p]);
      elements += static_cast<double>(parameters_[p].second);
    }
    auto& family = prometheus::BuildGauge()
                       .Name("tessera_worker_layer_kept_ratio")
                       .Help("Share of the gradient elements of a group of layers that is kept.")
                       .Labels(labels_)
                       .Register(registry_);
    for (const auto& [name, sums] : groups) family.Add({{"layers", name}}).Set(sums.first / sums.second);
  }

 private:
  prometheus::Gauge& Gauge(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels_).Register(registry_).Add({});
  }
  prometheus::Gauge& Memory(const std::string& kind) {
    auto& family = prometheus::BuildGauge()
                       .Name("tessera_worker_memory_bytes")
                       .Help("Counted tensor bytes; reserved: of the allocator, from the system.")
                       .Labels(labels_)
                       .Register(registry_);
    return family.Add({{"kind", kind}});
  }
  prometheus::Counter& Counter(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels_).Register(registry_).Add({});
  }
  prometheus::Histogram& Histogram(const std::string& name, const std::string& help) {
    auto& family = prometheus::BuildHistogram().Name(name).Help(help).Labels(labels_).Register(registry_);
    return family.Add({}, Durations());
  }

  prometheus::Registry& registry_;
  const std::vector<std::pair<std::string, int64_t>> parameters_;
  prometheus::Labels labels_;
  prometheus::Gauge &step_, &last_step_, &loss_, &generation_, &kept_, &coverage_, &checkpoint_;
  prometheus::Gauge &allocated_, &peak_, &predicted_, &reserved_, &fragmentation_;
  double profiled_ = 0;  // when the allocator was
  prometheus::Counter &tokens_, &traffic_;
  prometheus::Histogram &duration_, &sync_;
};

class ExposedMetrics final : public WorkerMetrics {
 public:
  explicit ExposedMetrics(const std::string& address)
      : registry_(std::make_shared<prometheus::Registry>()), exposer_(address, 1) {
    exposer_.RegisterCollectable(registry_);
    address_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", exposer_.GetListeningPorts().at(0));
  }

  std::string address() const override { return address_; }
  void Describe(const WorkerMetricsOptions& options) override {
    series_ = std::make_unique<Series>(*registry_, options);
  }
  void OnStep(const StepReport& report) override {
    if (series_ != nullptr) series_->Step(report);
  }
  void OnBudgets(int64_t, const std::vector<int64_t>& kept) override {
    if (series_ != nullptr) series_->Budgets(kept);
  }
  void OnCheckpoint(int64_t, const std::string&) override {
    if (series_ != nullptr) series_->Checkpoint();
  }

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<Series> series_;
  prometheus::Exposer exposer_;
  std::string address_;
};

}  // namespace

std::string LayerGroupOf(const std::string& parameter) {
  std::vector<std::string> parts = absl::StrSplit(parameter, '.');
  for (std::string& part : parts) {
    if (!part.empty() && std::all_of(part.begin(), part.end(), absl::ascii_isdigit)) part = "*";
  }
  return absl::StrJoin(parts, ".");
}

absl::StatusOr<std::unique_ptr<WorkerMetrics>> WorkerMetrics::Serve(const std::string& address) {
  try {
    return std::make_unique<ExposedMetrics>(address);
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat("can't serve metrics on ", address, ": ", error.what()));
  }
}

}  // namespace tessera::worker

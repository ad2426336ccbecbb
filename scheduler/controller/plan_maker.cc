#include "scheduler/controller/plan_maker.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "scheduler/controller/planning_evidence.h"
#include "scheduler/controller/proto_time.h"
#include "scheduler/job/admission.h"
#include "scheduler/wire/plan_wire.h"

namespace tessera::scheduler {
namespace {

int64_t LimitPerWorker(const v1::TrainingJobSpec& spec, const ControllerOptions& options) {
  int64_t limit = spec.resources().memory_limit_bytes();
  if (options.memory_bytes > 0) {
    const int workers = std::max(1, spec.workers().count());
    const int64_t share = std::max<int64_t>(1, options.memory_bytes / workers - job::kWorkerBaseBytes);
    limit = limit > 0 ? std::min(limit, share) : share;
  }
  return limit;
}

// Of workers that are unlike; else empty. What they ask for beyond the machine's memory is cut in proportion.
std::vector<plan::WorkerCapacity> CapacitiesOf(const v1::TrainingJobSpec& spec,
                                               const ControllerOptions& options) {
  const auto& workers = spec.resources().per_worker();
  const auto alike = [&](const v1::WorkerResources& worker) {
    return worker.memory_limit_bytes() == workers[0].memory_limit_bytes() &&
           worker.speed() == workers[0].speed() &&
           worker.bandwidth_bytes_per_second() == workers[0].bandwidth_bytes_per_second();
  };
  if (std::all_of(workers.begin(), workers.end(), alike)) return {};
  const int64_t count = workers.size();
  const int64_t room =
      options.memory_bytes > 0 ? std::max(count, options.memory_bytes - count * job::kWorkerBaseBytes) : 0;
  double asked = 0;
  std::vector<plan::WorkerCapacity> capacities;
  for (const v1::WorkerResources& worker : workers) {
    const int64_t limit = worker.memory_limit_bytes() > 0 ? worker.memory_limit_bytes() : room / count;
    capacities.push_back({.usable_bytes = limit,
                          .relative_speed = worker.speed(),
                          .bytes_per_second = static_cast<double>(worker.bandwidth_bytes_per_second())});
    asked += static_cast<double>(limit);
  }
  if (room == 0 || asked <= static_cast<double>(room)) return capacities;
  for (plan::WorkerCapacity& capacity : capacities) {
    capacity.usable_bytes = std::max<int64_t>(
        1,
        static_cast<int64_t>(static_cast<double>(capacity.usable_bytes) * static_cast<double>(room) / asked));
  }
  return capacities;
}

double CoresPerWorker(const v1::TrainingJobSpec& spec, const ControllerOptions& options) {
  const double share = static_cast<double>(options.cores) / std::max(1, spec.workers().count());
  const int threads = spec.resources().cpu_threads();
  if (threads > 0) return std::min<double>(threads, share);
  return share >= 1 ? std::floor(share) : share;  // as many threads as whole cores
}

}  // namespace

absl::StatusOr<v1::Plan> MakeJobPlan(const v1::TrainingJobSpec& spec, ModelDescriber& describer,
                                     const ControllerOptions& options, absl::Time now) {
  const int listed = spec.resources().per_worker_size();
  if (listed != 0 && listed != spec.workers().count()) {
    return absl::InvalidArgumentError(absl::StrCat("spec.resources.perWorker: has ", listed, " entries for ",
                                                   spec.workers().count(),
                                                   " workers; give one per worker, or none"));
  }
  TESSERA_ASSIGN_OR_RETURN(const v1::ModelShape description, describer.Describe(spec));
  TESSERA_ASSIGN_OR_RETURN(const plan::ModelShape shape, wire::FromMessage(description));
  if (spec.schedule().has_epochs() && shape.training_samples < 1) {
    return absl::InvalidArgumentError(
        "spec.schedule.epochs: the size of the data is not known; give schedule.steps or schedule.tokens");
  }
  wire::PlanContext context;
  context.reason = "submitted";
  std::vector<plan::WorkerCapacity> capacities = CapacitiesOf(spec, options);
  v1::TrainingJobSpec alike = spec;  // with one limit for all, where that is what the list says
  if (capacities.empty() && listed > 0) {
    alike.mutable_resources()->set_memory_limit_bytes(spec.resources().per_worker(0).memory_limit_bytes());
  }
  context.memory_limit_bytes = LimitPerWorker(alike, options);
  context.cores_per_worker = CoresPerWorker(spec, options);
  if (const double ratio = RecordedPeakOverPlan(options.state_directory, shape.Fingerprint()); ratio > 1) {
    const auto less = [ratio](int64_t bytes) {
      return static_cast<int64_t>(static_cast<double>(bytes) / ratio);
    };
    context.memory_limit_bytes = less(context.memory_limit_bytes);
    for (plan::WorkerCapacity& capacity : capacities) capacity.usable_bytes = less(capacity.usable_bytes);
    absl::StrAppendFormat(
        &context.reason,
        "; an earlier job of this model needed %.1f %% more than planned, so limits count as "
        "that much less",
        100 * (ratio - 1));
  }
  TESSERA_ASSIGN_OR_RETURN(v1::Plan plan, wire::PlanJob(shape, spec, context, capacities));
  SetTime(now, plan.mutable_create_time());
  for (auto& worker : *plan.mutable_workers()) worker.set_node(options.node);
  return plan;
}

absl::Status CheckFits(const v1::Plan& plan) {
  if (plan.fit().empty() || plan.fit() == "fits" || plan.fit() == "unknown") return absl::OkStatus();
  const std::string changes =
      plan.remedies().empty()
          ? "no single change of coverage, batch, sequence length or workers makes it fit"
          : absl::StrCat("any of these makes it fit: ", absl::StrJoin(plan.remedies(), "; "));
  return absl::ResourceExhaustedError(absl::StrCat("the job does not fit: ", plan.fit(), "; ", changes));
}

int64_t ClaimOf(const v1::Plan& plan) {
  int64_t bytes = 0;
  for (const auto& worker : plan.workers()) bytes += worker.memory().peak() + job::kWorkerBaseBytes;
  return bytes;
}

}  // namespace tessera::scheduler

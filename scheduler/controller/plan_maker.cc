#include "scheduler/controller/plan_maker.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "scheduler/controller/planning_evidence.h"
#include "scheduler/controller/proto_time.h"
#include "scheduler/controller/worker_offers.h"
#include "scheduler/job/admission.h"
#include "scheduler/plan/communicator_limit.h"
#include "scheduler/wire/plan_wire.h"

namespace tessera::scheduler {

absl::StatusOr<v1::Plan> MakeJobPlan(const v1::TrainingJobSpec& spec, ModelDescriber& describer,
                                     const ControllerOptions& options, absl::Time now) {
  TESSERA_ASSIGN_OR_RETURN(const v1::ModelShape description, describer.Describe(spec));
  TESSERA_ASSIGN_OR_RETURN(WorkerOffers offers, OffersTo(spec, options, description.process()));
  TESSERA_ASSIGN_OR_RETURN(const plan::ModelShape shape, wire::FromMessage(description));
  if (spec.schedule().has_epochs() && shape.training_samples < 1) {
    return absl::InvalidArgumentError(
        "spec.schedule.epochs: the size of the data is not known; give schedule.steps or schedule.tokens");
  }
  wire::PlanContext context;
  context.reason = "submitted";
  context.memory_limit_bytes = offers.limit_bytes;
  context.cores_per_worker = offers.cores;
  context.flops_per_second = offers.flops_per_second;
  context.bytes_per_second = offers.bytes_per_second;
  if (const double ratio = RecordedPeakOverPlan(options.state_directory, shape.Fingerprint()); ratio > 1) {
    const auto less = [ratio](int64_t bytes) {
      return static_cast<int64_t>(static_cast<double>(bytes) / ratio);
    };
    context.memory_limit_bytes = less(context.memory_limit_bytes);
    for (plan::WorkerCapacity& capacity : offers.capacities)
      capacity.usable_bytes = less(capacity.usable_bytes);
    absl::StrAppendFormat(
        &context.reason,
        "; an earlier job of this model needed %.1f %% more than planned, so limits count as "
        "that much less",
        100 * (ratio - 1));
  }
  TESSERA_ASSIGN_OR_RETURN(v1::Plan plan, wire::PlanJob(shape, spec, context, offers.capacities));
  SetTime(now, plan.mutable_create_time());
  for (auto& worker : *plan.mutable_workers()) worker.set_node(offers.nodes[worker.rank()]);
  plan.mutable_links()->Add(offers.links.begin(), offers.links.end());
  TESSERA_RETURN_IF_ERROR(CheckCommunicators(spec, plan));
  return plan;
}

bool IsElastic(const v1::WorkersSpec& workers) {
  return (workers.has_min() && workers.min() < workers.count()) ||
         (workers.has_max() && workers.max() > workers.count());
}

absl::StatusOr<v1::Plan> MakeElasticPlan(const v1::TrainingJobSpec& spec, ModelDescriber& describer,
                                         const ControllerOptions& options, absl::Time now) {
  absl::StatusOr<v1::Plan> first = MakeJobPlan(spec, describer, options, now);
  const auto fits = [](const absl::StatusOr<v1::Plan>& plan) { return plan.ok() && CheckFits(*plan).ok(); };
  if (fits(first) || !IsElastic(spec.workers())) return first;
  if (!first.ok() && !absl::IsResourceExhausted(first.status())) return first;
  v1::TrainingJobSpec less = spec;
  for (int workers = spec.workers().count() - 1; workers >= spec.workers().min(); --workers) {
    less.mutable_workers()->set_count(workers);
    absl::StatusOr<v1::Plan> plan = MakeJobPlan(less, describer, options, now);
    if (fits(plan)) return plan;
  }
  return first;
}

std::string FewerWorkers(const v1::TrainingJobSpec& spec, const v1::Plan& plan) {
  if (!IsElastic(spec.workers()) || plan.workers_size() >= spec.workers().count()) return "";
  return absl::StrCat(plan.workers_size(), " of ", spec.workers().count(),
                      " workers are planned: more do not fit, and spec.workers.min is ",
                      spec.workers().min());
}

absl::Status CheckFits(const v1::Plan& plan) {
  if (plan.fit().empty() || plan.fit() == "fits" || plan.fit() == "unknown") return absl::OkStatus();
  const std::string changes =
      plan.remedies().empty()
          ? "no single change of coverage, batch, sequence length or workers makes it fit"
          : absl::StrCat("any of these makes it fit: ", absl::StrJoin(plan.remedies(), "; "));
  return absl::ResourceExhaustedError(absl::StrCat("the job does not fit: ", plan.fit(), "; ", changes));
}

absl::Status CheckCommunicators(const v1::TrainingJobSpec& spec, const v1::Plan& plan) {
  const int workers = plan.workers_size();
  if (spec.resources().gpus() == 0 || spec.backend() == v1::BACKEND_GLOO || workers < 2)
    return absl::OkStatus();
  // Weights that travel have communicators of their own, that of all workers among them.
  const bool weights =
      spec.sharding() == v1::SHARDING_FSDP || spec.subnetwork().masking() == v1::MASKING_BACKWARD;
  std::set<std::vector<int>> sets;
  for (const v1::PlanUnit& unit : plan.units()) sets.emplace(unit.holders().begin(), unit.holders().end());
  std::vector<int> needed(workers, weights ? 1 : 0);
  for (const std::vector<int>& holders : sets) {
    if (holders.size() < 2 || static_cast<int>(holders.size()) == workers) continue;
    for (const int rank : holders) needed[rank] += weights ? 2 : 1;
  }
  const int most = *std::max_element(needed.begin(), needed.end());
  if (most <= plan::kMostNcclCommunicators) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("spec.subnetwork: a worker would be in ", most,
                                                   " sets of holders with an NCCL communicator each, and ",
                                                   plan::kMostNcclCommunicators,
                                                   " are the most, as each takes memory of its GPU; use "
                                                   "spec.subnetwork.granularity block, or scheme cyclic, or "
                                                   "spec.backend gloo"));
}

bool CanNeverWork(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status) ||
         absl::IsUnimplemented(status);
}

job::Demand ClaimOf(const v1::Plan& plan, const v1::TrainingJobSpec& spec, const ControllerOptions& options) {
  job::Demand claim;
  // Where workers share GPUs the job has all of them, or it would share with others.
  if (spec.resources().gpus() > 0) claim.gpus = std::min(plan.workers_size(), GpuCount(options));
  for (const auto& worker : plan.workers()) {
    if (spec.resources().gpus() > 0) {  // tensors on GPUs take none of the node's memory
      AddAt(options, worker.node(), job::kGpuWorkerBaseBytes, &claim.bytes);
      continue;
    }
    const int64_t process = worker.process_bytes() > 0 ? worker.process_bytes() : job::kWorkerBaseBytes;
    AddAt(options, worker.node(), worker.memory().peak() + process, &claim.bytes);
  }
  return claim;
}

}  // namespace tessera::scheduler

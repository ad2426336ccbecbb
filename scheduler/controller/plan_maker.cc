#include "scheduler/controller/plan_maker.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
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

double CoresPerWorker(const v1::TrainingJobSpec& spec, const ControllerOptions& options) {
  const double share = static_cast<double>(options.cores) / std::max(1, spec.workers().count());
  const int threads = spec.resources().cpu_threads();
  if (threads > 0) return std::min<double>(threads, share);
  return share >= 1 ? std::floor(share) : share;  // as many threads as whole cores
}

}  // namespace

absl::StatusOr<v1::Plan> MakeJobPlan(const v1::TrainingJobSpec& spec, ModelDescriber& describer,
                                     const ControllerOptions& options, absl::Time now) {
  TESSERA_ASSIGN_OR_RETURN(const v1::ModelShape description, describer.Describe(spec));
  TESSERA_ASSIGN_OR_RETURN(const plan::ModelShape shape, wire::FromMessage(description));
  if (spec.schedule().has_epochs() && shape.training_samples < 1) {
    return absl::InvalidArgumentError(
        "spec.schedule.epochs: the size of the data is not known; give schedule.steps or schedule.tokens");
  }
  wire::PlanContext context;
  context.reason = "submitted";
  context.memory_limit_bytes = LimitPerWorker(spec, options);
  context.cores_per_worker = CoresPerWorker(spec, options);
  TESSERA_ASSIGN_OR_RETURN(v1::Plan plan, wire::PlanJob(shape, spec, context));
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

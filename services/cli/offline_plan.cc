#include "services/cli/offline_plan.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "proto/tessera/v1/defaults.h"
#include "proto/tessera/v1/validate.h"
#include "proto/tessera/v1/violation.h"
#include "scheduler/launch/worker_describer.h"
#include "scheduler/wire/plan_wire.h"

namespace tessera::cli {

absl::StatusOr<v1::Plan> PlanOffline(v1::TrainingJob job, const OfflinePlanOptions& options) {
  const bool no_data = job.spec().data().train().empty();
  spec::ApplyDefaults(&job);
  std::vector<spec::Violation> violations = spec::Validate(job);
  if (no_data) std::erase_if(violations, [](const auto& v) { return v.path == "spec.data.train"; });
  TESSERA_RETURN_IF_ERROR(spec::MakeInvalid(violations));
  const auto describer = scheduler::MakeWorkerDescriber(
      {.worker_program = options.worker_program, .cache_directory = options.cache_directory});
  TESSERA_ASSIGN_OR_RETURN(const v1::ModelShape description, describer->Describe(job.spec()));
  TESSERA_ASSIGN_OR_RETURN(const plan::ModelShape shape, wire::FromMessage(description));
  wire::PlanContext context;
  context.reason = "planned without a service";
  context.memory_limit_bytes = job.spec().resources().memory_limit_bytes();
  std::vector<plan::WorkerCapacity> capacities;
  for (const v1::WorkerResources& worker : job.spec().resources().per_worker()) {
    capacities.push_back({.usable_bytes = worker.memory_limit_bytes(),
                          .relative_speed = worker.speed(),
                          .bytes_per_second = static_cast<double>(worker.bandwidth_bytes_per_second())});
  }
  return wire::PlanJob(shape, job.spec(), context, capacities);
}

}  // namespace tessera::cli

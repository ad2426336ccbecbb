// The API without a transport: what every door of the service calls. Thread-safe;
// calls may block on the store and, for Create, on describing a model.
// Errors are absl::Status; a bad field carries violations (spec::ViolationsFrom).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/controller/controller.h"
#include "scheduler/controller/node_registry.h"
#include "scheduler/store/job_store.h"
#include "services/api/watch_stream.h"
#include "tessera/v1/api.pb.h"

namespace tessera::services {

struct ApiOptions {
  int max_watches = 1536;                               // open at one time, over all doors
  int max_creations = 4;                                // running at one time, over all doors
  std::function<std::vector<v1::NodeProfile>()> nodes;  // without an agent: asked anew for each ListNodes
  std::shared_ptr<scheduler::NodeRegistry> registry;    // null: one of its own
};

class JobHandlers {
 public:
  JobHandlers(scheduler::Controller* controller, scheduler::JobStore* store, int max_watches,
              int max_creations);

  // ResourceExhausted when too many run: describing a model takes seconds of CPU.
  // `caller_gone` (may be empty) is asked before the job is stored: Cancelled if so.
  absl::StatusOr<v1::CreateTrainingJobResponse> Create(const v1::CreateTrainingJobRequest& request);
  absl::StatusOr<v1::CreateTrainingJobResponse> Create(const v1::CreateTrainingJobRequest& request,
                                                       const std::function<bool()>& caller_gone);
  absl::StatusOr<v1::TrainingJob> Get(const v1::GetTrainingJobRequest& request);
  absl::StatusOr<v1::ListTrainingJobsResponse> List(const v1::ListTrainingJobsRequest& request);
  absl::StatusOr<v1::TrainingJob> Update(const v1::UpdateTrainingJobRequest& request);
  // Plans, so it is bounded as Create is.
  absl::StatusOr<v1::TrainingJob> RecomputeBudgets(const v1::RecomputeBudgetsRequest& request);
  absl::StatusOr<v1::TrainingJob> Resize(const v1::ResizeTrainingJobRequest& request);
  absl::StatusOr<google::protobuf::Empty> Delete(const v1::DeleteTrainingJobRequest& request);
  absl::StatusOr<v1::TrainingJob> Cancel(const v1::CancelTrainingJobRequest& request);
  absl::StatusOr<v1::TrainingJob> Suspend(const v1::SuspendTrainingJobRequest& request);
  absl::StatusOr<v1::TrainingJob> Resume(const v1::ResumeTrainingJobRequest& request);
  absl::StatusOr<v1::ListEventsResponse> ListEvents(const v1::ListEventsRequest& request);
  absl::StatusOr<v1::GetLogsResponse> GetLogs(const v1::GetLogsRequest& request);
  absl::StatusOr<v1::GetMetricsResponse> GetMetrics(const v1::GetMetricsRequest& request);
  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(const v1::ListCheckpointsRequest& request);
  absl::StatusOr<v1::ExplainTrainingJobResponse> Explain(const v1::ExplainTrainingJobRequest& request);
  // ResourceExhausted when too many are open. `ready` is called, on any thread and
  // without blocking, whenever the stream has something to take.
  absl::StatusOr<std::shared_ptr<WatchStream>> Watch(const v1::WatchTrainingJobRequest& request,
                                                     std::function<void()> ready);

 private:
  scheduler::Controller* const controller_;
  scheduler::JobStore* const store_;
  std::shared_ptr<WatchSlots> slots_;
  const int max_creations_;
  std::atomic<int> creations_ = 0;  // calls under way that plan
};

class PlanHandlers {
 public:
  explicit PlanHandlers(scheduler::JobStore* store) : store_(store) {}
  absl::StatusOr<v1::Plan> Get(const v1::GetPlanRequest& request);
  absl::StatusOr<v1::ListPlansResponse> List(const v1::ListPlansRequest& request);

 private:
  scheduler::JobStore* const store_;
};

class NodeHandlers {
 public:
  NodeHandlers(scheduler::JobStore* store, std::function<std::vector<v1::NodeProfile>()> nodes,
               std::shared_ptr<scheduler::NodeRegistry> registry);
  // With what the allocators of running workers say.
  absl::StatusOr<v1::ListNodesResponse> List(const v1::ListNodesRequest& request);
  absl::StatusOr<v1::ListLinksResponse> ListLinks(const v1::ListLinksRequest& request);
  absl::StatusOr<v1::ListNodesResponse> Profile(const v1::ProfileNodesRequest& request);
  absl::StatusOr<v1::ReportNodeResponse> Report(const v1::ReportNodeRequest& request);

 private:
  absl::StatusOr<v1::ListNodesResponse> Nodes(absl::Time now);

  scheduler::JobStore* const store_;
  const std::function<std::vector<v1::NodeProfile>()> nodes_;
  const std::shared_ptr<scheduler::NodeRegistry> registry_;
};

struct Api {
  // `controller` and `store` outlive it.
  Api(scheduler::Controller* controller, scheduler::JobStore* store, ApiOptions options)
      : jobs(controller, store, options.max_watches, options.max_creations),
        plans(store),
        nodes(store, std::move(options.nodes), std::move(options.registry)) {}
  JobHandlers jobs;
  PlanHandlers plans;
  NodeHandlers nodes;
};

// "default" for an empty namespace; InvalidArgument for a missing name.
absl::StatusOr<scheduler::JobKey> KeyFrom(const std::string& ns, const std::string& name);

}  // namespace tessera::services

#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "services/api/api.h"
#include "services/api/job_logs.h"

namespace tessera::services {

namespace {

void AddWorkers(const v1::TrainingJob& job, v1::ListNodesResponse* response) {
  for (const v1::WorkerStatus& worker : job.status().workers()) {
    if (worker.memory_reserved_bytes() <= 0) continue;
    for (v1::NodeProfile& node : *response->mutable_nodes()) {
      if (node.name() != worker.node()) continue;
      v1::WorkerDevice& out = *node.add_workers();
      out.set_namespace_(job.namespace_());
      out.set_job(job.name());
      out.set_rank(worker.rank());
      out.mutable_device()->set_name("cpu");
      out.mutable_device()->set_allocated_bytes(worker.memory_used_bytes());
      out.mutable_device()->set_reserved_bytes(worker.memory_reserved_bytes());
      out.mutable_device()->set_fragmentation_ratio(worker.fragmentation_ratio());
    }
  }
}

}  // namespace

NodeHandlers::NodeHandlers(scheduler::JobStore* store, std::function<std::vector<v1::NodeProfile>()> nodes,
                           std::shared_ptr<scheduler::NodeRegistry> registry)
    : store_(store),
      nodes_(std::move(nodes)),
      registry_(registry != nullptr ? std::move(registry) : std::make_shared<scheduler::NodeRegistry>()) {}

absl::StatusOr<v1::ListNodesResponse> NodeHandlers::Nodes(absl::Time now) {
  if (nodes_) {
    for (v1::NodeProfile& node : nodes_()) {
      v1::ReportNodeRequest report;
      *report.mutable_node() = std::move(node);
      TESSERA_RETURN_IF_ERROR(registry_->Report(report, now).status());
    }
  }
  v1::ListNodesResponse response;
  for (v1::NodeProfile& node : registry_->Nodes(now)) *response.add_nodes() = std::move(node);
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobPage page, store_->List("-", 0, ""));
  for (const scheduler::JobRecord& record : page.jobs) {
    if (!IsTerminal(record.job.status().state())) AddWorkers(record.job, &response);
  }
  return response;
}

absl::StatusOr<v1::ListNodesResponse> NodeHandlers::List(const v1::ListNodesRequest&) {
  return Nodes(absl::Now());
}

absl::StatusOr<v1::ListLinksResponse> NodeHandlers::ListLinks(const v1::ListLinksRequest& request) {
  v1::ListLinksResponse response;
  for (v1::LinkProfile& link : registry_->Links(absl::Now(), request.node())) {
    *response.add_links() = std::move(link);
  }
  return response;
}

absl::StatusOr<v1::ListNodesResponse> NodeHandlers::Profile(const v1::ProfileNodesRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(v1::ListNodesResponse nodes, Nodes(absl::Now()));
  TESSERA_RETURN_IF_ERROR(registry_->MarkDue(request.node()));
  return nodes;
}

absl::StatusOr<v1::ReportNodeResponse> NodeHandlers::Report(const v1::ReportNodeRequest& request) {
  return registry_->Report(request, absl::Now());
}

}  // namespace tessera::services

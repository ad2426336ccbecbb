#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "services/api/api.h"

namespace tessera::services {

NodeHandlers::NodeHandlers(std::function<std::vector<v1::NodeProfile>()> nodes,
                           std::shared_ptr<scheduler::NodeRegistry> registry)
    : nodes_(std::move(nodes)),
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

#include "services/tesserad/own_node.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "services/agent/link_server.h"
#include "services/agent/node_agent.h"
#include "services/api/local_node.h"
#include "spdlog/spdlog.h"

namespace tessera::services {
namespace {

class AgentInProcess final : public OwnNode {
 public:
  AgentInProcess(std::unique_ptr<agent::LinkServer> server, agent::NodeAgentOptions options)
      : server_(std::move(server)), address_(options.address), agent_(std::move(options)) {
    agent_.Start();
  }
  v1::NodeProfile Profile() const override {
    v1::NodeProfile node = ProfileLocalNode();
    node.set_address(address_);
    return node;
  }

 private:
  std::unique_ptr<agent::LinkServer> server_;
  const std::string address_;
  agent::NodeAgent agent_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OwnNode>> StartOwnNode(std::shared_ptr<scheduler::NodeRegistry> registry,
                                                      const std::string& link_host, int link_port) {
  std::unique_ptr<agent::LinkServer> server;
  agent::NodeAgentOptions options;
  if (!link_host.empty()) {
    TESSERA_ASSIGN_OR_RETURN(server, agent::LinkServer::Start(link_host, link_port));
    options.address = absl::StrCat(link_host, ":", server->port());
    spdlog::info("event=links_answered address={}", options.address);
  }
  options.profile = ProfileLocalNode;
  options.report = [registry = std::move(registry)](const v1::ReportNodeRequest& request) {
    return registry->Report(request, absl::Now());
  };
  options.on_error = [](const absl::Status& status) {
    spdlog::error("event=node_not_reported error=\"{}\"", status.ToString());
  };
  return std::make_unique<AgentInProcess>(std::move(server), std::move(options));
}

}  // namespace tessera::services

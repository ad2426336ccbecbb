// This machine as a node among those whose agents report to the service.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "scheduler/controller/node_registry.h"
#include "tessera/v1/node.pb.h"

namespace tessera::services {

class OwnNode {
 public:
  virtual ~OwnNode() = default;
  virtual v1::NodeProfile Profile() const = 0;  // as it is now
};

// An agent in this process that reports to `registry`. With `link_host`, an IPv4 address of this machine, it
// answers link probes there and measures its own links when its turn comes; empty: it does not.
absl::StatusOr<std::unique_ptr<OwnNode>> StartOwnNode(std::shared_ptr<scheduler::NodeRegistry> registry,
                                                      const std::string& link_host, int link_port);

}  // namespace tessera::services

// Reports a node to the scheduler and measures the links it is asked to. The same code runs in tessera-agent,
// one for each node, and inside tesserad for its own machine.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/agent/link_probe.h"
#include "tessera/v1/api.pb.h"

namespace tessera::agent {

struct NodeAgentOptions {
  std::string address;  // host:port of this node's LinkServer; empty: its links are not measured
  std::function<v1::NodeProfile()> profile;
  std::function<absl::StatusOr<v1::ReportNodeResponse>(const v1::ReportNodeRequest&)> report;
  std::function<absl::StatusOr<LinkSample>(const std::string&)> measure = [](const std::string& address) {
    return MeasureLink(address);
  };
  std::function<void(const absl::Status&)> on_error;  // of a report, may be empty
};

v1::LinkProfile ToProfile(const std::string& peer, const LinkSample& sample);

class NodeAgent {
 public:
  explicit NodeAgent(NodeAgentOptions options) : options_(std::move(options)) {}
  // Waits for a measurement under way.
  ~NodeAgent();

  // In a thread of its own until the object ends.
  void Start();

  // One report, and the measurements it is answered with. How long to wait before the next one. What was
  // measured is reported until a report arrives.
  absl::Duration Pass();

 private:
  void Run();

  const NodeAgentOptions options_;
  v1::ReportNodeRequest next_;  // of the thread that calls Pass
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tessera::agent

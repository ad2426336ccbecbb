// What is known of nodes and of the links between them: agents report, planning and the API read. A figure
// that is too old is marked stale and no longer planned by. Links are measured between a bounded number of
// peers, and never two at one time that share a node. Thread-safe.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tessera/v1/api.pb.h"

namespace tessera::scheduler {

struct NodeRegistryOptions {
  absl::Duration report_interval = absl::Seconds(15);
  absl::Duration node_stale = absl::Seconds(60);    // without a report
  absl::Duration node_forgotten = absl::Hours(24);  // likewise: it and its links are dropped
  absl::Duration measure_interval = absl::Minutes(10);
  absl::Duration link_stale = absl::Minutes(30);
  absl::Duration retry_interval = absl::Minutes(1);     // after a failed try
  absl::Duration measurement_limit = absl::Minutes(2);  // then it counts as given up
  size_t max_nodes = 4096;
};

class NodeRegistry {
 public:
  explicit NodeRegistry(NodeRegistryOptions options = {}) : options_(options) {}

  // InvalidArgument names the field: a node without a name, a figure that is negative or not finite.
  // ResourceExhausted: too many nodes.
  absl::StatusOr<v1::ReportNodeResponse> Report(const v1::ReportNodeRequest& request, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // With age and stale set; by name.
  std::vector<v1::NodeProfile> Nodes(absl::Time now) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The same, by node, then peer. `node`: at either end; empty: all.
  std::vector<v1::LinkProfile> Links(absl::Time now, const std::string& node = "") const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The links at `node` (empty: all) are due now, however young. InvalidArgument: no such node.
  absl::Status MarkDue(const std::string& node) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Node {
    v1::NodeProfile profile;
    absl::Time reported;
  };
  struct Link {
    v1::LinkProfile profile;
    absl::Time measured = absl::InfinitePast();  // when it last succeeded
    absl::Time due = absl::InfinitePast();
    absl::Time started = absl::InfinitePast();  // of a measurement under way
  };
  using Ends = std::pair<std::string, std::string>;  // node that measures, peer

  void Forget(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(const std::string& node, const v1::LinkProfile& link, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::string> PeersOf(const std::string& node, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Busy(const std::string& node, absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const NodeRegistryOptions options_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Node> nodes_ ABSL_GUARDED_BY(mutex_);
  std::map<Ends, Link> links_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::scheduler

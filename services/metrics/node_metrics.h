// Series of nodes and links, as their agents reported them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "prometheus/metric_family.h"
#include "scheduler/controller/node_registry.h"

namespace tessera::services {

class NodeMetrics {
 public:
  static constexpr int kMaxNodes = 1000;
  static constexpr int kMaxLinks = 10000;

  // `registry` may be null: no series.
  explicit NodeMetrics(std::shared_ptr<const scheduler::NodeRegistry> registry)
      : registry_(std::move(registry)) {}
  // What is stale or unknown has no series.
  std::vector<prometheus::MetricFamily> Collect(absl::Time now) const;

 private:
  std::shared_ptr<const scheduler::NodeRegistry> registry_;
};

}  // namespace tessera::services

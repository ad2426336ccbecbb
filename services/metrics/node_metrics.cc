#include "services/metrics/node_metrics.h"

#include <string>

#include "services/metrics/families.h"

namespace tessera::services {
namespace {

using Labels = std::vector<prometheus::ClientMetric::Label>;

void AddDevice(const std::string& node, const v1::DeviceProfile& device, Families* out) {
  const Labels labels = {{"node", node}, {"device", device.name()}};
  const auto memory = [&](const char* kind, int64_t bytes) {
    if (bytes <= 0) return;
    Labels with_kind = labels;
    with_kind.push_back({"kind", kind});
    out->Gauge("tessera_node_device_memory_bytes", "Memory of a device by kind; unknown ones are missing.",
               static_cast<double>(bytes), std::move(with_kind));
  };
  memory("total", device.total_bytes());
  memory("free", device.free_bytes());
  memory("largest_block", device.largest_block_bytes());
  memory("reserved", device.reserved_bytes());
  if (device.largest_block_bytes() > 0) {
    out->Gauge("tessera_node_fragmentation_ratio", "1 - largest free block / free memory of a device.",
               device.fragmentation_ratio(), labels);
  }
}

void AddLink(const v1::LinkProfile& link, Families* out) {
  if (link.round_trip_seconds() > 0) {
    out->Gauge("tessera_link_rtt_seconds", "Median round-trip time between two nodes.",
               link.round_trip_seconds(), {{"node", link.node()}, {"peer", link.peer()}});
  }
  const auto bandwidth = [&](const std::string& from, const std::string& to, double rate) {
    if (rate <= 0) return;
    out->Gauge("tessera_link_bandwidth_bytes_per_second", "Payload that passes from a node to its peer.",
               rate, {{"node", from}, {"peer", to}});
  };
  bandwidth(link.node(), link.peer(), link.bandwidth_bytes_per_second());
  bandwidth(link.peer(), link.node(), link.receive_bandwidth_bytes_per_second());
}

}  // namespace

std::vector<prometheus::MetricFamily> NodeMetrics::Collect(absl::Time now) const {
  if (registry_ == nullptr) return {};
  Families out;
  int nodes = 0;
  for (const v1::NodeProfile& node : registry_->Nodes(now)) {
    if (node.stale() || ++nodes > kMaxNodes) continue;
    for (const v1::DeviceProfile& device : node.devices()) AddDevice(node.name(), device, &out);
  }
  int links = 0;
  for (const v1::LinkProfile& link : registry_->Links(now)) {
    if (!link.stale() && ++links <= kMaxLinks) AddLink(link, &out);
  }
  return out.Take();
}

}  // namespace tessera::services

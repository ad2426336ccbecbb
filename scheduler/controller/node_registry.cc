#include "scheduler/controller/node_registry.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/controller/proto_time.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kLongestName = 253;  // of a DNS name

absl::Status CheckName(const std::string& field, const std::string& name) {
  if (!name.empty() && name.size() <= kLongestName) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": has ", name.size(), " characters; must have 1 to ", kLongestName));
}

absl::Status CheckFigure(const std::string& field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, "; must be 0 (unknown) or more and finite"));
}

absl::Status CheckLink(const std::string& field, const v1::LinkProfile& link) {
  TESSERA_RETURN_IF_ERROR(CheckName(field + ".peer", link.peer()));
  TESSERA_RETURN_IF_ERROR(CheckFigure(field + ".roundTripSeconds", link.round_trip_seconds()));
  TESSERA_RETURN_IF_ERROR(CheckFigure(field + ".leastRoundTripSeconds", link.least_round_trip_seconds()));
  TESSERA_RETURN_IF_ERROR(CheckFigure(field + ".kernelRoundTripSeconds", link.kernel_round_trip_seconds()));
  TESSERA_RETURN_IF_ERROR(CheckFigure(field + ".bandwidthBytesPerSecond", link.bandwidth_bytes_per_second()));
  TESSERA_RETURN_IF_ERROR(
      CheckFigure(field + ".receiveBandwidthBytesPerSecond", link.receive_bandwidth_bytes_per_second()));
  return CheckFigure(field + ".confidence", link.confidence());
}

absl::Status CheckDevice(const std::string& field, const v1::DeviceProfile& device) {
  for (const auto& [name, bytes] : {std::pair{"totalBytes", device.total_bytes()},
                                    {"freeBytes", device.free_bytes()},
                                    {"largestBlockBytes", device.largest_block_bytes()},
                                    {"reservedBytes", device.reserved_bytes()}}) {
    if (bytes < 0)
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".", name, ": ", bytes, "; must be 0 (unknown) or more"));
  }
  return CheckFigure(field + ".fragmentationRatio", device.fragmentation_ratio());
}

absl::Status Check(const v1::ReportNodeRequest& request) {
  TESSERA_RETURN_IF_ERROR(CheckName("node.name", request.node().name()));
  for (int d = 0; d < request.node().devices_size(); ++d) {
    TESSERA_RETURN_IF_ERROR(CheckDevice(absl::StrCat("node.devices[", d, "]"), request.node().devices(d)));
  }
  for (int l = 0; l < request.links_size(); ++l) {
    TESSERA_RETURN_IF_ERROR(CheckLink(absl::StrCat("links[", l, "]"), request.links(l)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ReportNodeResponse> NodeRegistry::Report(const v1::ReportNodeRequest& request,
                                                            absl::Time now) {
  TESSERA_RETURN_IF_ERROR(Check(request));
  const std::string& name = request.node().name();
  absl::MutexLock lock(&mutex_);
  Forget(now);
  if (nodes_.count(name) == 0 && nodes_.size() >= options_.max_nodes) {
    return absl::ResourceExhaustedError(absl::StrCat("node.name: '", name, "' would be one more than the ",
                                                     options_.max_nodes, " nodes that are kept"));
  }
  nodes_[name] = {request.node(), now};
  for (const v1::LinkProfile& link : request.links()) Take(name, link, now);
  v1::ReportNodeResponse response;
  SetDuration(options_.report_interval, response.mutable_next_report());
  if (request.node().address().empty() || Busy(name, now)) return response;
  for (const std::string& peer : PeersOf(name, now)) {
    Link& link = links_[{name, peer}];
    if (link.due > now || Busy(peer, now)) continue;
    link.started = now;
    v1::LinkTarget& target = *response.add_measure();
    target.set_peer(peer);
    target.set_address(nodes_[peer].profile.address());
    break;  // one at a time: the next one after the next report
  }
  return response;
}

void NodeRegistry::Forget(absl::Time now) {
  std::erase_if(nodes_,
                [&](const auto& node) { return now - node.second.reported > options_.node_forgotten; });
  std::erase_if(links_, [&](const auto& link) {
    return nodes_.count(link.first.first) == 0 || nodes_.count(link.first.second) == 0;
  });
}

void NodeRegistry::Take(const std::string& node, const v1::LinkProfile& measured, absl::Time now) {
  if (measured.peer() == node || nodes_.count(measured.peer()) == 0) return;  // forgotten meanwhile
  Link& link = links_[{node, measured.peer()}];
  link.started = absl::InfinitePast();
  if (!measured.error().empty()) {  // what was measured before stays, and ages
    link.profile.set_error(measured.error());
    link.due = now + options_.retry_interval;
    return;
  }
  link.profile = measured;
  link.profile.set_node(node);
  SetTime(now, link.profile.mutable_profile_time());
  link.measured = now;
  link.due = now + options_.measure_interval;
}

// Of n nodes in the order of their names, number i measures to i + 1, i + 2, i + 4 and so on: every node is
// within log n links of every other, and has 2 log n of them at most.
std::vector<std::string> NodeRegistry::PeersOf(const std::string& node, absl::Time now) const {
  std::vector<std::string> names;
  for (const auto& [name, known] : nodes_) {
    const bool answers = !known.profile.address().empty() && now - known.reported <= options_.node_stale;
    if (answers || name == node) names.push_back(name);
  }
  const auto self = static_cast<size_t>(std::lower_bound(names.begin(), names.end(), node) - names.begin());
  std::vector<std::string> peers;
  for (size_t step = 1; step <= names.size() / 2; step *= 2) {
    // Of two opposite ones the first measures.
    if (2 * step == names.size() && self >= step) continue;
    peers.push_back(names[(self + step) % names.size()]);
  }
  return peers;
}

bool NodeRegistry::Busy(const std::string& node, absl::Time now) const {
  return std::any_of(links_.begin(), links_.end(), [&](const auto& link) {
    return (link.first.first == node || link.first.second == node) &&
           now - link.second.started < options_.measurement_limit;
  });
}

std::vector<v1::NodeProfile> NodeRegistry::Nodes(absl::Time now) const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::NodeProfile> nodes;
  for (const auto& [name, known] : nodes_) {
    v1::NodeProfile& node = nodes.emplace_back(known.profile);
    SetDuration(now - known.reported, node.mutable_age());
    node.set_stale(now - known.reported > options_.node_stale);
  }
  return nodes;
}

std::vector<v1::LinkProfile> NodeRegistry::Links(absl::Time now, const std::string& node) const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::LinkProfile> links;
  for (const auto& [ends, known] : links_) {
    if (!node.empty() && ends.first != node && ends.second != node) continue;
    const bool measured = known.measured != absl::InfinitePast();
    if (!measured && known.profile.error().empty()) continue;  // asked for, not there yet
    v1::LinkProfile& link = links.emplace_back(known.profile);
    link.set_node(ends.first);
    link.set_peer(ends.second);
    link.set_stale(!measured || now - known.measured > options_.link_stale);
    if (!measured) continue;
    SetDuration(now - known.measured, link.mutable_age());
    // Halves by the time it is stale.
    link.set_confidence(link.confidence() *
                        std::exp2(-absl::FDivDuration(now - known.measured, options_.link_stale)));
  }
  return links;
}

absl::Status NodeRegistry::MarkDue(const std::string& node) {
  absl::MutexLock lock(&mutex_);
  if (!node.empty() && nodes_.count(node) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("node: '", node, "' has not reported; ListNodes names those that have"));
  }
  for (auto& [ends, link] : links_) {
    if (node.empty() || ends.first == node || ends.second == node) link.due = absl::InfinitePast();
  }
  return absl::OkStatus();
}

}  // namespace tessera::scheduler

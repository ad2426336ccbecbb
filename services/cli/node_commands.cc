// tessera nodes, links: the machines, what they have, and how far they are from each other.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/client.h"
#include "services/cli/commands.h"
#include "services/cli/quantity.h"
#include "services/cli/session.h"
#include "services/cli/table.h"

namespace tessera::cli {
namespace {

std::string AgeOf(const google::protobuf::Duration& age, bool stale) {
  const std::string text = FormatClock(absl::Seconds(age.seconds()));
  return stale ? absl::StrCat(text, " (stale)") : text;
}

std::string BytesOrUnknown(int64_t value) { return value > 0 ? FormatBytes(value) : std::string("-"); }

std::string RateOrUnknown(double value) {
  return value > 0 ? absl::StrCat(FormatBytes(static_cast<int64_t>(value)), "/s") : std::string("-");
}

std::string MillisecondsOrUnknown(double seconds) {
  return seconds > 0 ? absl::StrFormat("%.3g ms", 1e3 * seconds) : std::string("-");
}

int Nodes(Session& session) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const auto nodes = (*client)->Call(&v1::NodeService::Stub::ListNodes, v1::ListNodesRequest());
  if (!nodes.ok()) return session.Fail(nodes.status());
  if (session.PrintMessage(*nodes)) return kSucceeded;
  std::vector<std::vector<std::string>> rows;
  for (const auto& node : nodes->nodes()) {
    if (node.devices().empty()) {
      rows.push_back({node.name(), "-", "", "-", "-", "-", "-", "-", AgeOf(node.age(), node.stale())});
    }
    for (const auto& device : node.devices()) {
      // Without the largest free block nothing is known of fragmentation.
      const bool blocks = device.largest_block_bytes() > 0;
      rows.push_back({node.name(), device.name(), device.model(), absl::StrCat(device.cores()),
                      BytesOrUnknown(device.total_bytes()), BytesOrUnknown(device.free_bytes()),
                      BytesOrUnknown(device.largest_block_bytes()),
                      blocks ? FormatPercent(device.fragmentation_ratio()) : std::string("-"),
                      AgeOf(node.age(), node.stale())});
    }
    for (const auto& worker : node.workers()) {
      const v1::DeviceProfile& device = worker.device();
      rows.push_back({absl::StrCat("  ", worker.job(), "/", worker.rank()), device.name(), "worker", "",
                      BytesOrUnknown(device.reserved_bytes()), BytesOrUnknown(device.free_bytes()),
                      BytesOrUnknown(device.largest_block_bytes()),
                      FormatPercent(device.fragmentation_ratio()), ""});
    }
  }
  return session.PrintRows({{"node"},
                            {"device"},
                            {"model", false, 1},
                            {"cores", true, 2},
                            {"total", true},
                            {"free", true},
                            {"largest block", true, 3},
                            {"fragmented", true, 4},
                            {"profile age", true, 5}},
                           rows);
}

int Links(Session& session, const std::string& node) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  v1::ListLinksRequest request;
  request.set_node(node);
  const auto links = (*client)->Call(&v1::NodeService::Stub::ListLinks, request);
  if (!links.ok()) return session.Fail(links.status());
  if (session.PrintMessage(*links)) return kSucceeded;
  if (links->links().empty()) {
    *session.environment.out
        << "No links have been measured: that takes two nodes that run `tessera-agent run`.\n";
    return kSucceeded;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& link : links->links()) {
    rows.push_back({link.node(), link.peer(), MillisecondsOrUnknown(link.round_trip_seconds()),
                    MillisecondsOrUnknown(link.least_round_trip_seconds()),
                    RateOrUnknown(link.bandwidth_bytes_per_second()),
                    RateOrUnknown(link.receive_bandwidth_bytes_per_second()),
                    FormatPercent(link.confidence()),
                    link.has_age() ? AgeOf(link.age(), link.stale()) : std::string("never"), link.error()});
  }
  return session.PrintRows({{"node"},
                            {"peer"},
                            {"round trip", true},
                            {"least", true, 2},
                            {"to peer", true},
                            {"from peer", true},
                            {"confidence", true, 3},
                            {"age", true, 1},
                            {"last error", false, 4}},
                           rows);
}

int Measure(Session& session, const std::string& node) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  v1::ProfileNodesRequest request;
  request.set_node(node);
  const auto nodes = (*client)->Call(&v1::NodeService::Stub::ProfileNodes, request);
  if (!nodes.ok()) return session.Fail(nodes.status());
  return Links(session, node);
}

}  // namespace

void AddNodeCommands(CLI::App& app, Session& session) {
  CLI::App* nodes = app.add_subcommand("nodes", "Show the machines and their memory");
  nodes->footer("Example:\n  tessera nodes -o json\n");
  nodes->callback([&session] { session.action = [&session] { return Nodes(session); }; });

  struct Arguments {
    std::string node;
    bool measure = false;
  };
  CLI::App* links = app.add_subcommand("links", "Show the measured links between the machines");
  auto arguments = std::make_shared<Arguments>();
  links->add_option("NODE", arguments->node, "Those of this node; default: all");
  links->add_flag("--measure", arguments->measure,
                  "Have them measured anew, by the agents' next reports; shows what is known until then");
  links->footer("Examples:\n  tessera links\n  tessera links node-a --measure\n");
  links->callback([&session, arguments] {
    session.action = [&session, arguments] {
      return arguments->measure ? Measure(session, arguments->node) : Links(session, arguments->node);
    };
  });
}

}  // namespace tessera::cli

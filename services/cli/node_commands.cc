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

using Rows = std::vector<std::vector<std::string>>;

// What the service answers, whole where JSON or YAML is asked for, else as `show` prints it.
template <typename Method, typename Request, typename Show>
int Ask(Session& session, Method method, const Request& request, Show show) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const auto answer = (*client)->Call(method, request);
  if (!answer.ok()) return session.Fail(answer.status());
  return session.PrintMessage(*answer) ? kSucceeded : show(*answer);
}

void AddDevice(const v1::DeviceProfile& device, const std::string& name, const std::string& model,
               int64_t total, const std::string& age, Rows* rows) {
  // Without the largest free block nothing is known of a machine's fragmentation.
  const bool known = device.largest_block_bytes() > 0 || device.reserved_bytes() > 0;
  rows->push_back({name, device.name().empty() ? "-" : device.name(), model,
                   device.cores() > 0 ? absl::StrCat(device.cores()) : std::string("-"),
                   BytesOrUnknown(total), BytesOrUnknown(device.free_bytes()),
                   BytesOrUnknown(device.largest_block_bytes()),
                   known ? FormatPercent(device.fragmentation_ratio()) : std::string("-"), age});
}

int ShowNodes(Session& session, const v1::ListNodesResponse& nodes) {
  Rows rows;
  for (const auto& node : nodes.nodes()) {
    const std::string age = AgeOf(node.age(), node.stale());
    if (node.devices().empty()) AddDevice({}, node.name(), "", 0, age, &rows);
    for (const auto& device : node.devices())
      AddDevice(device, node.name(), device.model(), device.total_bytes(), age, &rows);
    for (const auto& worker : node.workers()) {
      AddDevice(worker.device(), absl::StrCat("  ", worker.job(), "/", worker.rank()), "worker",
                worker.device().reserved_bytes(), "", &rows);
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

int ShowLinks(Session& session, const v1::ListLinksResponse& links) {
  if (links.links().empty()) {
    *session.environment.out
        << "No links have been measured: that takes two nodes that run `tessera-agent run`.\n";
    return kSucceeded;
  }
  Rows rows;
  for (const auto& link : links.links()) {
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

int Nodes(Session& session) {
  return Ask(session, &v1::NodeService::Stub::ListNodes, v1::ListNodesRequest(),
             [&session](const auto& nodes) { return ShowNodes(session, nodes); });
}

int Links(Session& session, const std::string& node, bool measure) {
  if (measure) {
    v1::ProfileNodesRequest request;
    request.set_node(node);
    const absl::StatusOr<Client*> client = session.Connect();
    if (!client.ok()) return session.Fail(client.status());
    const auto marked = (*client)->Call(&v1::NodeService::Stub::ProfileNodes, request);
    if (!marked.ok()) return session.Fail(marked.status());
  }
  v1::ListLinksRequest request;
  request.set_node(node);
  return Ask(session, &v1::NodeService::Stub::ListLinks, request,
             [&session](const auto& links) { return ShowLinks(session, links); });
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
    session.action = [&session, arguments] { return Links(session, arguments->node, arguments->measure); };
  });
}

}  // namespace tessera::cli

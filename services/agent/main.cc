// tessera-agent: what a node has, and how far its peers are.
#include <pthread.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "proto/tessera/v1/job_codec.h"
#include "services/agent/link_probe.h"
#include "services/agent/link_server.h"
#include "services/api/local_node.h"

namespace {

using tessera::agent::LinkSample;

int Fail(const absl::Status& status) {
  std::cerr << "tessera-agent: " << status.message() << "\n";
  return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}

int Serve(const std::string& host, int port) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before the server's threads
  const auto server = tessera::agent::LinkServer::Start(host, port);
  if (!server.ok()) return Fail(server.status());
  std::cout << host << ":" << (*server)->port() << std::endl;
  int signal = 0;
  sigwait(&ends, &signal);
  return 0;
}

// What is not known is null.
nlohmann::ordered_json ToJson(const std::string& peer, const LinkSample& sample) {
  const auto known = [](double value) {
    return value > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  return {{"peer", peer},
          {"roundTripSeconds", known(absl::ToDoubleSeconds(sample.round_trip_median))},
          {"leastRoundTripSeconds", known(absl::ToDoubleSeconds(sample.round_trip_least))},
          {"kernelRoundTripSeconds", known(absl::ToDoubleSeconds(sample.kernel_round_trip))},
          {"sendBytesPerSecond", known(sample.send_bytes_per_second)},
          {"receiveBytesPerSecond", known(sample.receive_bytes_per_second)},
          {"confidence", sample.confidence}};
}

int Measure(const std::vector<std::string>& peers) {
  int failures = 0;
  for (const std::string& peer : peers) {
    const auto sample = tessera::agent::MeasureLink(peer);
    if (sample.ok()) {
      std::cout << ToJson(peer, *sample).dump() << std::endl;
      continue;
    }
    ++failures;
    std::cout
        << nlohmann::ordered_json{{"peer", peer}, {"error", std::string(sample.status().message())}}.dump()
        << std::endl;
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures a node and its links", "tessera-agent");
  app.require_subcommand(1);
  std::string host = "127.0.0.1";
  int port = 0;
  std::vector<std::string> peers;
  CLI::App* serve =
      app.add_subcommand("serve", "Answer the link probes of other nodes until SIGTERM; prints the address");
  serve->add_option("--host", host, "IPv4 address to listen on; whoever reaches it may use its link")
      ->capture_default_str();
  serve->add_option("--port", port, "0: any")->capture_default_str();
  serve->footer("Example:\n  tessera-agent serve --host 10.0.0.7 --port 7070\n");
  CLI::App* links = app.add_subcommand("links", "Measure the links to peers; one JSON object a line");
  links->add_option("PEER", peers, "host:port of their `tessera-agent serve`")->required();
  links->footer("Example:\n  tessera-agent links 10.0.0.7:7070 10.0.0.8:7070\n");
  CLI::App* node = app.add_subcommand("node", "Show this node's devices as JSON");
  node->footer("Example:\n  tessera-agent node\n");
  CLI11_PARSE(app, argc, argv);
  if (*serve) return Serve(host, port);
  if (*links) return Measure(peers);
  std::cout << tessera::spec::ToJson(tessera::services::ProfileLocalNode()) << std::endl;
  return 0;
}

// tessera-agent: what a node has, and how far its peers are.
#include <pthread.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/quantity.h"
#include "services/agent/link_probe.h"
#include "services/agent/link_server.h"
#include "services/agent/node_agent.h"
#include "services/api/local_node.h"
#include "services/cli/client.h"
#include "services/cli/endpoint.h"

namespace {

using tessera::agent::LinkSample;

int Fail(const absl::Status& status) {
  std::cerr << "tessera-agent: " << status.message() << "\n";
  return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}

// Signals that end the program; blocked in all threads that are started after it.
class Ends {
 public:
  Ends() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  void Wait() const {
    int signal = 0;
    sigwait(&set_, &signal);
  }

 private:
  sigset_t set_;
};

int Serve(const std::string& host, int port) {
  const Ends ends;
  const auto server = tessera::agent::LinkServer::Start(host, port);
  if (!server.ok()) return Fail(server.status());
  std::cout << host << ":" << (*server)->port() << std::endl;
  ends.Wait();
  return 0;
}

struct RunOptions {
  tessera::cli::ConnectionOptions service;
  std::string node;
  std::string host;
  int port = 0;
  std::string memory;
};

// No more of the CPU's memory than `limit`, for what runs beside has the rest.
void LimitMemory(int64_t limit, tessera::v1::NodeProfile* node) {
  if (limit <= 0 || node->devices().empty()) return;
  tessera::v1::DeviceProfile* cpu = node->mutable_devices(0);
  cpu->set_total_bytes(std::min(cpu->total_bytes(), limit));
  cpu->set_free_bytes(std::min(cpu->free_bytes(), limit));
}

std::optional<std::string> Variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Reads the token again for each report: Kubernetes renews it.
class Reporter {
 public:
  explicit Reporter(tessera::cli::Endpoint endpoint) : endpoint_(std::move(endpoint)) {}
  absl::Status Connect() {
    auto token = tessera::cli::ReadToken(endpoint_);
    if (!token.ok()) return token.status();
    if (client_ != nullptr && *token == token_) return absl::OkStatus();
    auto client = tessera::cli::Client::Make(endpoint_, *token);
    if (!client.ok()) return client.status();
    client_ = *std::move(client);
    token_ = *std::move(token);
    return absl::OkStatus();
  }
  absl::StatusOr<tessera::v1::ReportNodeResponse> Report(const tessera::v1::ReportNodeRequest& request) {
    if (absl::Status status = Connect(); !status.ok()) return status;
    return client_->Call(&tessera::v1::NodeService::Stub::ReportNode, request);
  }

 private:
  const tessera::cli::Endpoint endpoint_;
  std::string token_;
  std::unique_ptr<tessera::cli::Client> client_;
};

int Run(RunOptions options) {
  namespace cli = tessera::cli;
  const Ends ends;
  const int64_t limit = tessera::spec::ParseBytes(options.memory).value_or(0);
  options.service.state_directory = cli::DefaultStateDirectory(Variable);
  const auto endpoint = cli::ResolveEndpoint(options.service, Variable);
  if (!endpoint.ok()) return Fail(endpoint.status());
  Reporter reporter(*endpoint);
  if (const absl::Status status = reporter.Connect(); !status.ok()) return Fail(status);
  const auto server = tessera::agent::LinkServer::Start(options.host, options.port);
  if (!server.ok()) return Fail(server.status());
  tessera::agent::NodeAgent agent(
      {.address = options.host + ":" + std::to_string((*server)->port()),
       .profile =
           [&options, limit] {
             tessera::v1::NodeProfile node = tessera::services::ProfileLocalNode();
             LimitMemory(limit, &node);
             if (!options.node.empty()) node.set_name(options.node);
             return node;
           },
       .report =
           [&reporter](const tessera::v1::ReportNodeRequest& request) { return reporter.Report(request); },
       .on_error = [](const absl::Status& status) { Fail(status); }});
  agent.Start();
  std::cout << options.host << ":" << (*server)->port() << std::endl;
  ends.Wait();
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
  RunOptions run_options;
  CLI::App* run = app.add_subcommand(
      "run", "Report this node to a scheduler and measure its links when asked, until SIGTERM");
  run->add_option("--host", run_options.host, "IPv4 address of this node in the cluster's network")
      ->required();
  run->add_option("--port", run_options.port, "For the probes of other nodes; 0: any")->capture_default_str();
  run->add_option("--node", run_options.node, "Name to report as; default: the host's");
  run->add_option("--memory", run_options.memory,
                  "Report no more memory than this, like 64Gi; on Kubernetes what the node allots to pods")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return tessera::spec::ParseBytes(text).has_value() ? "" : "must be a number of bytes like 64Gi";
          },
          "BYTES"));
  run->add_option("--address", run_options.service.address,
                  "Of the scheduler, https://host:port; default: $TESSERA_ADDRESS, else the daemon here");
  run->add_option("--token-file", run_options.service.token_file, "Default: $TESSERA_TOKEN_FILE");
  run->add_option("--ca", run_options.service.ca_file, "Whom to trust; default: $TESSERA_CA");
  run->footer(
      "Example:\n  tessera-agent run --host 10.0.0.7 --address https://scheduler:8443 --token-file token\n");
  CLI::App* links = app.add_subcommand("links", "Measure the links to peers; one JSON object a line");
  links->add_option("PEER", peers, "host:port of their `tessera-agent serve`")->required();
  links->footer("Example:\n  tessera-agent links 10.0.0.7:7070 10.0.0.8:7070\n");
  CLI::App* node = app.add_subcommand("node", "Show this node's devices as JSON");
  node->footer("Example:\n  tessera-agent node\n");
  CLI11_PARSE(app, argc, argv);
  if (*serve) return Serve(host, port);
  if (*run) return Run(run_options);
  if (*links) return Measure(peers);
  std::cout << tessera::spec::ToJson(tessera::services::ProfileLocalNode()) << std::endl;
  return 0;
}

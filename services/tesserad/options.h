// The command line of tesserad.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "scheduler/launch/kubernetes_objects.h"

namespace tessera::services {

struct DaemonOptions {
  static constexpr int kLastPort = -1;  // that of the last run in this state directory if free, else any

  std::string state_directory;
  std::string host = "127.0.0.1";
  int grpc_port = kLastPort;  // 0 = any
  int rest_port = kLastPort;
  bool insecure = false;
  std::string tls_host;   // empty: no TLS listeners
  int tls_grpc_port = 0;  // 0 = any
  int tls_rest_port = 0;
  std::string tls_certificate;
  std::string tls_key;
  double rate_limit = 200;  // calls per second and client; 0 = none
  std::string store = "sqlite";
  std::string token_file;      // empty: `token` in the state directory, made if missing
  std::string worker_program;  // empty: beside tesserad
  bool kubernetes = false;
  scheduler::KubernetesOptions workers;  // of --kubernetes; its namespace comes with the credentials
  bool training_jobs = false;            // keep custom resources; needs --kubernetes
  bool token_review = false;             // take tokens of Kubernetes too; needs --kubernetes
  std::string token_audience = "tessera";
  std::string leader_lease;        // Lease whose holder alone works; empty: this one does. Needs --kubernetes
  std::string pod_name;            // of this replica
  std::string advertise;           // [https://]HOST:PORT by which worker pods reach a gRPC port
  int64_t memory_limit_bytes = 0;  // 0 = what the machine has
  std::string link_host;           // empty: links of this machine are not measured
  int link_port = 0;               // 0 = any
  absl::Duration idle_exit = absl::InfiniteDuration();
  int exit_code = -1;  // >= 0: end now; help or an error was printed
};

DaemonOptions ParseOptions(int argc, char** argv);

}  // namespace tessera::services

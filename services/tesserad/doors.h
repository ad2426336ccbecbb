// Where clients and workers come in: gRPC and REST on loopback, and both again with TLS for other machines.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/controller/controller.h"
#include "services/api/api.h"
#include "services/auth/client_token.h"
#include "services/grpc/server.h"
#include "services/metrics/service_metrics.h"
#include "services/rest/server.h"
#include "services/tesserad/idle_watch.h"
#include "services/tesserad/options.h"
#include "services/tesserad/state_directory.h"

namespace tessera::services {

// What is behind the doors. All of it outlives them.
struct BehindDoors {
  Api* api;
  scheduler::Controller* controller;
  ServiceMetrics* metrics;
  IdleWatch* idle;
  std::string token_file;  // told to programs on this machine
  std::shared_ptr<ClientToken> token;
  TokenReview review;          // of tokens that are not the service's own; may be empty
  WorkerReview worker_review;  // of workers' that are not their group's; may be empty
};

class ServiceDoors {
 public:
  // Listens on the ports that `options` name, or else on those of the last run in `state` if they are free,
  // or else on any, and writes to `state` where that is.
  static absl::StatusOr<ServiceDoors> Open(const DaemonOptions& options, const StateDirectory& state,
                                           const BehindDoors& behind);

  // Lines for people and scripts, with newlines.
  std::string Addresses(const StateDirectory& state) const;

  // Lets calls end within `grace` at each door.
  void Stop(absl::Duration grace);

 private:
  std::string host_;
  std::string tls_host_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<RestServer> rest_;
  std::unique_ptr<RestServer> tls_rest_;  // null: no TLS
};

}  // namespace tessera::services

#include "services/tesserad/doors.h"

#include <unistd.h>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace tessera::services {
namespace {

// Listens on the wanted port; where none was named, on the last run's or any.
template <typename Server, typename Options, typename... Args>
absl::StatusOr<std::unique_ptr<Server>> Listen(Options options, int wanted, int last, Args... args) {
  options.port = wanted == DaemonOptions::kLastPort ? last : wanted;
  auto server = Server::Start(options, args...);
  if (server.ok() || wanted != DaemonOptions::kLastPort || last == 0) return server;
  options.port = 0;
  return Server::Start(options, args...);
}

}  // namespace

absl::StatusOr<ServiceDoors> ServiceDoors::Open(const DaemonOptions& options, const StateDirectory& state,
                                                const BehindDoors& behind) {
  std::shared_ptr<TlsFiles> tls;
  if (!options.tls_host.empty()) {
    TESSERA_ASSIGN_OR_RETURN(tls, TlsFiles::Open(options.tls_certificate, options.tls_key));
  }
  const auto limit = std::make_shared<RateLimit>(options.rate_limit);
  const EndpointFile last = state.LastEndpoint();
  ServiceDoors doors;
  doors.host_ = options.host;
  doors.tls_host_ = options.tls_host;
  const GrpcOptions grpc{.host = options.host,
                         .tls = tls,
                         .tls_host = options.tls_host,
                         .tls_port = options.tls_grpc_port,
                         .policy = {behind.token, behind.review, behind.idle, limit},
                         .worker_review = behind.worker_review};
  TESSERA_ASSIGN_OR_RETURN(doors.grpc_, Listen<GrpcServer>(grpc, options.grpc_port, last.grpc_port,
                                                           behind.api, behind.controller));
  RestOptions rest{.host = options.host, .rate_limit = limit, .observer = behind.idle};
  rest.content.token = behind.token;
  rest.content.review = behind.review;
  rest.content.version = TESSERA_VERSION;
  rest.content.metrics = [metrics = behind.metrics] { return metrics->Text(); };
  TESSERA_ASSIGN_OR_RETURN(doors.rest_,
                           Listen<RestServer>(rest, options.rest_port, last.rest_port, behind.api));
  if (tls != nullptr) {
    rest.host = options.tls_host;
    rest.port = options.tls_rest_port;
    rest.tls = tls;
    TESSERA_ASSIGN_OR_RETURN(doors.tls_rest_, RestServer::Start(rest, behind.api));
  }
  TESSERA_RETURN_IF_ERROR(
      state.WriteEndpoint({options.host, doors.grpc_->port(), doors.rest_->port(), behind.token_file}));
  return doors;
}

std::string ServiceDoors::Addresses(const StateDirectory& state) const {
  std::string lines =
      absl::StrFormat("tesserad %s pid=%d grpc=%s:%d rest=http://%s:%d state=%s\n", TESSERA_VERSION,
                      ::getpid(), host_, grpc_->port(), host_, rest_->port(), state.path());
  if (tls_rest_ != nullptr) {
    absl::StrAppendFormat(&lines, "tls grpc=https://%s:%d rest=https://%s:%d\n", tls_host_, grpc_->tls_port(),
                          tls_host_, tls_rest_->port());
  }
  return lines;
}

void ServiceDoors::Stop(absl::Duration grace) {
  rest_->Stop(grace);
  if (tls_rest_ != nullptr) tls_rest_->Stop(grace);
  grpc_->Stop(grace);
}

}  // namespace tessera::services

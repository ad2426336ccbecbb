#include "services/grpc/server.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "services/grpc/open_streams.h"
#include "services/grpc/services.h"

namespace tessera::services {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;  // a plan of a large model; store values
constexpr size_t kOpeners = 4;              // threads that may wait for an answer about who watches
constexpr int kKeepaliveMilliseconds = 20000;
constexpr int kShortestPingMilliseconds = 5000;
constexpr const char* kServices[] = {"", "tessera.v1.JobService", "tessera.v1.PlanService",
                                     "tessera.v1.NodeService", "tessera.v1.WorkerService"};

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const TlsFiles& files) {
  constexpr unsigned kLookAgainSeconds = 1;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(files.key(), files.certificate(),
                                                                           kLookAgainSeconds));
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return grpc::experimental::TlsServerCredentials(options);
}

class RunningServer : public GrpcServer {
 public:
  RunningServer(const GrpcOptions& options, Api* api, scheduler::Controller* controller)
      : jobs_(api, options.policy, &streams_, &openers_),
        plans_(api, options.policy),
        nodes_(api, options.policy),
        workers_({controller, &streams_, options.worker_review, &openers_}, options.hello_deadline,
                 options.max_silent) {}
  ~RunningServer() override { Stop(absl::ZeroDuration()); }

  absl::Status Listen(const GrpcOptions& options) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    const std::string address = absl::StrCat(options.host, ":", options.port);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    if (options.tls != nullptr) {
      builder.AddListeningPort(absl::StrCat(options.tls_host, ":", options.tls_port),
                               TlsCredentials(*options.tls), &tls_port_);
    }
    for (grpc::Service* service : std::vector<grpc::Service*>{&jobs_, &plans_, &nodes_, &workers_}) {
      builder.RegisterService(service);
    }
    grpc::ResourceQuota quota("tesserad");
    quota.SetMaxThreads(options.max_threads);
    builder.SetResourceQuota(quota);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMilliseconds);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kShortestPingMilliseconds);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port that is taken is an error
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(absl::StrCat("cannot listen on ", address,
                                                 options.tls == nullptr ? "" : " or the TLS port",
                                                 "; is the port taken?"));
    }
    Serve(true);
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  int tls_port() const override { return tls_port_; }

  void Stop(absl::Duration grace) override {
    if (server_ == nullptr) return;
    Serve(false);
    streams_.EndAll();
    server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    server_->Wait();
    server_ = nullptr;
  }

 private:
  void Serve(bool serving) {
    for (const char* service : kServices)
      server_->GetHealthCheckService()->SetServingStatus(service, serving);
  }

  OpenStreams streams_;
  boost::asio::thread_pool openers_{kOpeners};
  GrpcJobService jobs_;
  GrpcPlanService plans_;
  GrpcNodeService nodes_;
  GrpcWorkerService workers_;
  int port_ = 0;
  int tls_port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const GrpcOptions& options, Api* api,
                                                              scheduler::Controller* controller) {
  auto server = std::make_unique<RunningServer>(options, api, controller);
  if (absl::Status status = server->Listen(options); !status.ok()) return status;
  return std::unique_ptr<GrpcServer>(std::move(server));
}

}  // namespace tessera::services

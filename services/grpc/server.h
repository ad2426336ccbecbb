// The gRPC door: JobService, PlanService, NodeService, WorkerService, health per service
// and reflection.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/controller/controller.h"
#include "services/api/api.h"
#include "services/auth/tls_files.h"
#include "services/grpc/call.h"
#include "services/grpc/worker_reactor.h"

namespace tessera::services {

struct GrpcOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0 = any
  // Besides, with TLS: reached from other machines. The files are read again when they change.
  std::shared_ptr<TlsFiles> tls;  // null: none
  std::string tls_host;
  int tls_port = 0;
  CallPolicy policy;
  WorkerReview worker_review;  // of workers that show another token than their group's; may be empty
  int max_threads = 512;
  absl::Duration hello_deadline = absl::Seconds(10);  // of a worker's stream
  size_t max_silent = 4096;                           // such streams before their hello
};

class GrpcServer {
 public:
  // Listens at once. `api` and `controller` outlive it. Unavailable when the port is taken.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcOptions& options, Api* api,
                                                           scheduler::Controller* controller);
  virtual ~GrpcServer() = default;
  virtual int port() const = 0;
  virtual int tls_port() const = 0;  // 0: none
  // Says NOT_SERVING, ends streams with UNAVAILABLE, lets calls end within `grace`, then
  // cancels them. Returns when all are over. May be called twice.
  virtual void Stop(absl::Duration grace) = 0;
};

}  // namespace tessera::services

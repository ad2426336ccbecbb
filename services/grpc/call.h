// What every call of the gRPC door has in common: the token, the status, the report.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "grpcpp/server_context.h"
#include "services/api/request_observer.h"
#include "services/auth/token.h"
#include "services/grpc/status.h"

namespace tessera::services {

struct CallPolicy {
  std::string token;                    // of clients
  RequestObserver* observer = nullptr;  // may be null
};

inline std::string Authorization(const grpc::ServerContextBase& context) {
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

inline absl::Status CheckClient(const CallPolicy& policy, const grpc::ServerContextBase& context) {
  return CheckBearer(Authorization(context), policy.token);
}

inline void Report(const CallPolicy& policy, const std::string& method, const absl::Status& status,
                   absl::Time start) {
  if (policy.observer != nullptr)
    policy.observer->RequestDone("grpc", method, status.code(), absl::Now() - start);
}

// Runs `handler` (-> StatusOr<Response>) when the client's token is right.
template <typename Response, typename Handler>
grpc::Status Answer(const CallPolicy& policy, const grpc::ServerContextBase& context, const char* method,
                    Response* response, Handler handler) {
  const absl::Time start = absl::Now();
  absl::Status status = CheckClient(policy, context);
  if (status.ok()) {
    absl::StatusOr<Response> result = handler();
    status = result.status();
    if (result.ok()) *response = *std::move(result);
  }
  Report(policy, method, status, start);
  return ToGrpcStatus(status);
}

}  // namespace tessera::services

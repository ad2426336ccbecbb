// What every call of the gRPC door has in common: the token, the status, the report.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "grpcpp/server_context.h"
#include "services/api/audit.h"
#include "services/api/request_observer.h"
#include "services/auth/client_token.h"
#include "services/auth/rate_limit.h"
#include "services/grpc/status.h"
#include "spdlog/spdlog.h"

namespace tessera::services {

struct CallPolicy {
  std::shared_ptr<ClientToken> token;     // never null
  TokenReview review;                     // of other tokens; may be empty
  RequestObserver* observer = nullptr;    // may be null
  std::shared_ptr<RateLimit> rate_limit;  // null: none
};

inline std::string Authorization(const grpc::ServerContextBase& context) {
  const auto found = context.client_metadata().find("authorization");
  if (found == context.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

// "127.0.0.1" of "ipv4:127.0.0.1:4711"; the whole of any other form.
inline std::string PeerAddress(const grpc::ServerContextBase& context) {
  std::string peer = context.peer();
  const size_t begin = peer.find(':');
  const size_t end = peer.rfind(':');
  if (begin == std::string::npos || end <= begin) return peer;
  return peer.substr(begin + 1, end - begin - 1);
}

// Who calls, read while the call's context is there.
struct Caller {
  explicit Caller(const grpc::ServerContextBase& context)
      : peer(PeerAddress(context)), authorization(Authorization(context)) {}
  std::string peer;
  std::string authorization;
};

// The caller's name. Blocks while a review is asked.
inline absl::StatusOr<std::string> CheckClient(const CallPolicy& policy, const Caller& caller,
                                               const std::string& method) {
  if (policy.rate_limit != nullptr) {
    if (absl::Status status = policy.rate_limit->Take(caller.peer, absl::Now()); !status.ok()) return status;
  }
  return CheckCaller(caller.authorization, policy.token.get(), policy.review, method);
}

inline void Report(const CallPolicy& policy, const std::string& method, const absl::Status& status,
                   absl::Time start) {
  if (policy.observer != nullptr)
    policy.observer->RequestDone("grpc", method, status.code(), absl::Now() - start);
}

// Runs `handler` (-> StatusOr<Response>) when the client's token is right.
template <typename Request, typename Response, typename Handler>
grpc::Status Answer(const CallPolicy& policy, const grpc::ServerContextBase& context, const char* method,
                    const Request& request, Response* response, Handler handler) {
  const absl::Time start = absl::Now();
  const Caller caller(context);
  const absl::StatusOr<std::string> user = CheckClient(policy, caller, method);
  absl::Status status = user.status();
  if (status.ok()) {
    absl::StatusOr<Response> result = handler();
    status = result.status();
    if (result.ok()) *response = *std::move(result);
    if (IsMutating(method))
      spdlog::info("{}", AuditLine("grpc", method, request, *user, caller.peer, status));
  }
  Report(policy, method, status, start);
  return ToGrpcStatus(status);
}

}  // namespace tessera::services

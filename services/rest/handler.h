// From an HTTP request to its reply: token, route, message, handler, JSON. No sockets.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "services/api/api.h"
#include "services/auth/client_token.h"
#include "services/rest/http.h"

namespace tessera::services {

struct RestContent {
  std::shared_ptr<ClientToken> token;  // never null
  TokenReview review;                  // of other tokens; may be empty
  std::string standby;  // not empty: requests but probes get 503 with this, and there may be no Api
  std::function<bool()> ready = [] { return true; };                    // /readyz
  std::function<std::string()> metrics = [] { return std::string(); };  // /metrics, text format
  std::string version = "0";                                            // in /openapi.json
};

// Thread-safe; blocks as the handlers of Api do. `api` outlives it.
class RestHandler {
 public:
  RestHandler(Api* api, RestContent content);
  HttpReply Handle(const HttpRequest& request) const;

  // /healthz and /readyz: answered without blocking.
  static bool IsProbe(std::string_view method, std::string_view target);
  // Plans a job, which takes seconds.
  static bool IsSlow(const HttpRequest& request);

 private:
  HttpReply Call(const HttpRequest& request, const std::string& user, std::string_view path,
                 std::string_view query) const;
  absl::StatusOr<std::unique_ptr<google::protobuf::Message>> Respond(
      const std::string& rpc, const google::protobuf::Message& message,
      const std::function<bool()>& caller_gone) const;
  // Of what wants no token.
  std::optional<HttpReply> Open(std::string_view path) const;
  HttpReply PrometheusTargets() const;

  Api* const api_;
  const RestContent content_;
  const std::string openapi_;
};

}  // namespace tessera::services

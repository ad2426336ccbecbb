// From an HTTP request to its reply: token, route, message, handler, JSON. No sockets.
#pragma once

#include <functional>
#include <string>

#include "services/api/api.h"
#include "services/rest/http.h"

namespace tessera::services {

struct RestContent {
  std::string token;                                                    // of clients
  std::function<bool()> ready = [] { return true; };                    // /readyz
  std::function<std::string()> metrics = [] { return std::string(); };  // /metrics, text format
};

// Thread-safe; blocks as the handlers of Api do. `api` outlives it.
class RestHandler {
 public:
  RestHandler(Api* api, RestContent content) : api_(api), content_(std::move(content)) {}
  HttpReply Handle(const HttpRequest& request) const;

 private:
  HttpReply Call(const HttpRequest& request, std::string_view path, std::string_view query) const;
  HttpReply PrometheusTargets() const;

  Api* const api_;
  const RestContent content_;
};

}  // namespace tessera::services

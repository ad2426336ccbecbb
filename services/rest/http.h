// One HTTP exchange without sockets.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tessera/v1/api.pb.h"

namespace tessera::services {

struct HttpRequest {
  std::string method;
  std::string target;                          // path and query, as sent
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string peer;  // address of the client
  // Whether nobody waits for the reply any more; may block for a moment. Empty: unknown.
  std::function<bool()> caller_gone;

  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string method = "unknown";  // rpc name, or a fixed word; for metrics
  absl::StatusCode code = absl::StatusCode::kOk;
  // Set: answer with the events of this watch instead of `body`.
  std::optional<v1::WatchTrainingJobRequest> watch;
};

}  // namespace tessera::services

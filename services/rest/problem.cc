#include "services/rest/problem.h"

#include "nlohmann/json.hpp"
#include "proto/tessera/v1/violation.h"
#include "services/api/reason.h"

namespace tessera::services {

int HttpStatusOf(const absl::Status& status) {
  if (ReasonOf(status) == kReasonRequestIdReused) return 422;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string HttpTitle(int http_status) {
  static const std::map<int, std::string> kTitles = {{200, "OK"},
                                                     {201, "Created"},
                                                     {400, "Bad Request"},
                                                     {401, "Unauthorized"},
                                                     {403, "Forbidden"},
                                                     {404, "Not Found"},
                                                     {405, "Method Not Allowed"},
                                                     {408, "Request Timeout"},
                                                     {409, "Conflict"},
                                                     {410, "Gone"},
                                                     {413, "Content Too Large"},
                                                     {415, "Unsupported Media Type"},
                                                     {422, "Unprocessable Content"},
                                                     {429, "Too Many Requests"},
                                                     {431, "Request Header Fields Too Large"},
                                                     {499, "Client Closed Request"},
                                                     {500, "Internal Server Error"},
                                                     {501, "Not Implemented"},
                                                     {503, "Service Unavailable"},
                                                     {504, "Gateway Timeout"}};
  const auto found = kTitles.find(http_status);
  return found == kTitles.end() ? "Error" : found->second;
}

HttpReply Problem(const absl::Status& status) { return Problem(HttpStatusOf(status), status); }

HttpReply Problem(int http_status, const absl::Status& status) {
  nlohmann::ordered_json document = {{"type", "about:blank"},
                                     {"title", HttpTitle(http_status)},
                                     {"status", http_status},
                                     {"detail", std::string(status.message())},
                                     {"code", absl::StatusCodeToString(status.code())},
                                     {"reason", ReasonOf(status)}};
  for (const spec::Violation& violation : spec::ViolationsFrom(status)) {
    nlohmann::ordered_json entry = {{"path", violation.path}, {"message", violation.message}};
    if (!violation.value.empty()) entry["value"] = violation.value;
    if (!violation.remedy.empty()) entry["remedy"] = violation.remedy;
    if (violation.line > 0) entry["line"] = violation.line;
    document["errors"].push_back(std::move(entry));
  }
  HttpReply reply;
  reply.status = http_status;
  reply.code = status.code();
  reply.content_type = "application/problem+json";
  reply.body = document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (http_status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"tessera\"");
  return reply;
}

}  // namespace tessera::services

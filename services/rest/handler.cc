#include "services/rest/handler.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "proto/tessera/v1/job_codec.h"
#include "services/api/audit.h"
#include "services/api/dispatch.h"
#include "services/api/job_logs.h"
#include "services/api/route.h"
#include "services/console/console.h"
#include "services/openapi/openapi.h"
#include "services/rest/problem.h"
#include "services/rest/request_message.h"
#include "spdlog/spdlog.h"

namespace tessera::services {
namespace {

using Json = nlohmann::ordered_json;
constexpr char kCreateRpc[] = "JobService.CreateTrainingJob";

HttpReply Plain(std::string text, int status = 200) {
  HttpReply reply;
  reply.status = status;
  reply.content_type = "text/plain; charset=utf-8";
  reply.body = std::move(text);
  return reply;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// "status.workers" of the response, as {"workers": ...}.
Json Part(const Json& whole, const std::string& path) {
  Json part = whole;
  std::string name;
  for (const absl::string_view step : absl::StrSplit(path, '.')) {
    name = std::string(step);
    part = part.contains(name) ? Json(part[name]) : Json();
  }
  return part.is_null() ? Json::object() : Json{{name, part}};
}

bool IsReadable(const HttpRequest& request) {
  if (request.body.empty()) return true;
  const std::string header = request.Header("content-type");
  const absl::string_view type =
      absl::StripAsciiWhitespace(absl::string_view(header).substr(0, header.find(';')));
  for (const absl::string_view known :
       {"application/json", "application/yaml", "application/x-yaml", "text/yaml"}) {
    if (absl::EqualsIgnoreCase(type, known)) return true;
  }
  return type.empty();
}

HttpReply LogText(const google::protobuf::Message& message) {
  const auto& logs = static_cast<const v1::GetLogsResponse&>(message);
  HttpReply reply = Plain(logs.text());
  reply.headers.emplace_back("Tessera-Next-Offset", absl::StrCat(logs.next_offset()));
  reply.headers.emplace_back("Tessera-Complete", logs.complete() ? "true" : "false");
  return reply;
}

std::string EtagOf(const google::protobuf::Message& response) {
  if (const auto* job = dynamic_cast<const v1::TrainingJob*>(&response)) return job->etag();
  const auto* created = dynamic_cast<const v1::CreateTrainingJobResponse*>(&response);
  return created != nullptr ? created->training_job().etag() : "";
}

// Or the name of a plain route; "" for what is not there.
std::string RpcOf(std::string_view method, std::string_view path) {
  if (const RouteMatch match = MatchRoute(method, path); match.route != nullptr) return match.route->rpc;
  for (const PlainRoute& plain : PlainRoutes()) {
    if (path == plain.path) return plain.name;
  }
  return "";
}

bool IsCreated(const std::string& rpc, const google::protobuf::Message& request) {
  return rpc == kCreateRpc && !static_cast<const v1::CreateTrainingJobRequest&>(request).validate_only();
}

}  // namespace

RestHandler::RestHandler(Api* api, RestContent content)
    : api_(api), content_(std::move(content)), openapi_(Dump(OpenApi(content_.version))) {}

bool RestHandler::IsProbe(std::string_view method, std::string_view target) {
  const std::string_view path = target.substr(0, target.find('?'));
  return (method == "GET" || method == "HEAD") && (path == "/healthz" || path == "/readyz");
}

bool RestHandler::IsSlow(const HttpRequest& request) {
  const std::string_view path = std::string_view(request.target).substr(0, request.target.find('?'));
  const RouteMatch match = MatchRoute(request.method, path);
  if (match.route == nullptr) return false;
  const absl::string_view rpc = match.route->rpc;
  return rpc == kCreateRpc || rpc == "JobService.ResizeTrainingJob";
}

HttpReply RestHandler::Handle(const HttpRequest& request) const {
  const size_t question = request.target.find('?');
  const std::string_view path = std::string_view(request.target).substr(0, question);
  const std::string_view query = question == std::string::npos
                                     ? std::string_view()
                                     : std::string_view(request.target).substr(question + 1);
  const bool get = request.method == "GET" || request.method == "HEAD";
  if (get) {
    if (std::optional<HttpReply> reply = Open(path); reply.has_value()) return *std::move(reply);
  }
  // Before the route: who has no token learns nothing about what is there.
  const absl::StatusOr<std::string> user = CheckCaller(request.Header("authorization"), content_.token.get(),
                                                       content_.review, RpcOf(request.method, path));
  if (!user.ok()) return Problem(user.status());
  if (!content_.standby.empty()) return Problem(absl::UnavailableError(content_.standby));
  if (get && path == "/metrics") {
    HttpReply reply = Plain(content_.metrics());
    reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
    reply.method = "metrics";
    return reply;
  }
  if (get && path == "/v1/prometheusTargets") return PrometheusTargets();
  return Call(request, *user, path, query);
}

std::optional<HttpReply> RestHandler::Open(std::string_view path) const {
  if (path == "/healthz") return Plain("ok\n");
  if (path == "/readyz") {
    if (content_.ready()) return Plain("ok\n");
    return Problem(absl::UnavailableError("the service is starting or stopping"));
  }
  if (path == "/openapi.json") {
    HttpReply reply;
    reply.method = "openapi";
    reply.body = openapi_;
    return reply;
  }
  const ConsoleFile file = FindConsoleFile(path);
  if (file.content.data() == nullptr) return std::nullopt;
  HttpReply reply;
  reply.method = "console";
  reply.content_type = file.content_type;
  reply.headers = {{"Content-Security-Policy", kConsolePolicy}, {"Referrer-Policy", "no-referrer"}};
  reply.body = std::string(file.content);
  return reply;
}

HttpReply RestHandler::Call(const HttpRequest& request, const std::string& user, std::string_view path,
                            std::string_view query) const {
  RouteMatch match = MatchRoute(request.method, path);
  for (const PlainRoute& plain : PlainRoutes()) {
    if (match.route == nullptr && path == plain.path) match.allowed = {"GET", "HEAD"};
  }
  if (match.route == nullptr && match.allowed.empty()) {
    return Problem(absl::NotFoundError(absl::StrCat("no such path: ", std::string(path.substr(0, 200)))));
  }
  if (match.route == nullptr) {
    const std::string allowed = absl::StrJoin(match.allowed, ", ");
    HttpReply reply = Problem(405, absl::UnimplementedError(absl::StrCat("this path takes ", allowed)));
    reply.headers.emplace_back("Allow", allowed);
    return reply;
  }
  const auto finish = [&](HttpReply reply) {
    reply.method = match.route->rpc;
    return reply;
  };
  if (!IsReadable(request)) {
    return finish(
        Problem(415, absl::InvalidArgumentError(
                         "send the body as application/json or application/yaml (Content-Type header)")));
  }
  const auto message = BuildRequest(match, query, request);
  if (!message.ok()) return finish(Problem(message.status()));
  HttpReply reply;
  if (match.route->stream) {
    reply.watch = static_cast<const v1::WatchTrainingJobRequest&>(**message);
    return finish(std::move(reply));
  }
  const auto response = Respond(match.route->rpc, **message, request.caller_gone);
  if (IsMutating(match.route->rpc)) {
    spdlog::info("{}", AuditLine("rest", match.route->rpc, **message, user, request.peer, response.status()));
  }
  if (!response.ok()) return finish(Problem(response.status()));
  if (absl::string_view(match.route->rpc) == "JobService.GetLogs" &&
      absl::StrContains(request.Header("accept"), "text/plain")) {
    return finish(LogText(**response));
  }
  reply.body = *match.route->part != '\0' ? Dump(Part(spec::ToJsonValue(**response), match.route->part))
                                          : spec::ToJson(**response) + "\n";
  if (IsCreated(match.route->rpc, **message)) reply.status = 201;
  if (const std::string etag = EtagOf(**response); !etag.empty())
    reply.headers.emplace_back("ETag", absl::StrCat("\"", etag, "\""));
  return finish(std::move(reply));
}

absl::StatusOr<std::unique_ptr<google::protobuf::Message>> RestHandler::Respond(
    const std::string& rpc, const google::protobuf::Message& message,
    const std::function<bool()>& caller_gone) const {
  if (rpc != kCreateRpc) return Dispatch(api_, rpc, message);
  auto created = api_->jobs.Create(static_cast<const v1::CreateTrainingJobRequest&>(message), caller_gone);
  if (!created.ok()) return created.status();
  return std::make_unique<v1::CreateTrainingJobResponse>(*std::move(created));
}

HttpReply RestHandler::PrometheusTargets() const {
  Json targets = Json::array();
  v1::ListTrainingJobsRequest request;
  request.set_namespace_("-");
  request.set_page_size(1000);
  do {
    const auto page = api_->jobs.List(request);
    if (!page.ok()) return Problem(page.status());
    for (const v1::TrainingJob& job : page->training_jobs()) {
      if (IsTerminal(job.status().state())) continue;
      for (const v1::WorkerStatus& worker : job.status().workers()) {
        if (worker.metrics_address().empty()) continue;
        targets.push_back({{"targets", {worker.metrics_address()}},
                           {"labels",
                            {{"tessera_namespace", job.namespace_()},
                             {"tessera_job", job.name()},
                             {"tessera_rank", absl::StrCat(worker.rank())}}}});
      }
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  HttpReply reply;
  reply.method = "prometheusTargets";
  reply.body = Dump(targets);
  return reply;
}

}  // namespace tessera::services

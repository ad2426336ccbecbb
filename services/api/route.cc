#include "services/api/route.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"

namespace tessera::services {
namespace {

#define TESSERA_JOBS "/v1/namespaces/{namespace}/trainingJobs"
#define TESSERA_JOB TESSERA_JOBS "/{name}"

constexpr Route kRoutes[] = {
    {"POST", TESSERA_JOBS, "JobService.CreateTrainingJob", "training_job"},
    {"GET", TESSERA_JOBS, "JobService.ListTrainingJobs"},
    {"GET", TESSERA_JOB, "JobService.GetTrainingJob"},
    {"PATCH", TESSERA_JOB, "JobService.UpdateTrainingJob", "training_job"},
    {"DELETE", TESSERA_JOB, "JobService.DeleteTrainingJob"},
    {"POST", TESSERA_JOB ":cancel", "JobService.CancelTrainingJob", "*"},
    {"POST", TESSERA_JOB ":suspend", "JobService.SuspendTrainingJob", "*"},
    {"POST", TESSERA_JOB ":resume", "JobService.ResumeTrainingJob", "*"},
    {"POST", TESSERA_JOB ":resize", "JobService.ResizeTrainingJob", "*"},
    {"POST", TESSERA_JOB ":recomputeBudgets", "JobService.RecomputeBudgets", "*"},
    {"POST", TESSERA_JOB ":explain", "JobService.ExplainTrainingJob", "*"},
    {"GET", TESSERA_JOB ":watch", "JobService.WatchTrainingJob", "", "", true},
    {"GET", TESSERA_JOB "/events", "JobService.ListEvents"},
    {"GET", TESSERA_JOB "/logs", "JobService.GetLogs"},
    {"GET", TESSERA_JOB "/metrics", "JobService.GetMetrics"},
    {"GET", TESSERA_JOB "/checkpoints", "JobService.ListCheckpoints"},
    {"GET", TESSERA_JOB "/workers", "JobService.GetTrainingJob", "", "status.workers"},
    {"GET", TESSERA_JOB "/plans", "PlanService.ListPlans"},
    {"GET", TESSERA_JOB "/plans/{generation}", "PlanService.GetPlan"},
    {"GET", "/v1/nodes", "NodeService.ListNodes"},
    {"GET", "/v1/links", "NodeService.ListLinks"},
    {"POST", "/v1/nodes:profile", "NodeService.ProfileNodes", "*"},
    {"POST", "/v1/nodes:report", "NodeService.ReportNode", "*"},
};

constexpr PlainRoute kPlainRoutes[] = {
    {"/", "Console", "text/html", "The console", true},
    {"/healthz", "Healthz", "text/plain", "The process answers", true},
    {"/readyz", "Readyz", "text/plain", "Requests are taken; 503 while draining", true},
    {"/openapi.json", "OpenApi", "application/json", "This document", true},
    {"/metrics", "PrometheusMetrics", "text/plain", "Series of the scheduler, for Prometheus"},
    {"/v1/prometheusTargets", "PrometheusTargets", "application/json",
     "The workers' own metrics, for Prometheus' HTTP service discovery"},
};

// Fills `variables` when `segment` fits `pattern`, which is a word, "{x}" or "{x}:verb".
bool MatchSegment(std::string_view pattern, std::string_view segment,
                  std::map<std::string, std::string>* variables) {
  if (pattern.empty() || pattern.front() != '{') return pattern == segment;
  const size_t close = pattern.find('}');
  const std::string_view verb = pattern.substr(close + 1);
  if (segment.size() <= verb.size() || segment.substr(segment.size() - verb.size()) != verb) return false;
  const std::string_view value = segment.substr(0, segment.size() - verb.size());
  // A colon belongs to a verb; without this "x:cancle" would be a job's name.
  if (value.find(':') != value.npos) return false;
  auto decoded = PercentDecode(value, false);
  if (!decoded.has_value()) return false;
  (*variables)[std::string(pattern.substr(1, close - 1))] = *std::move(decoded);
  return true;
}

}  // namespace

absl::Span<const Route> Routes() { return kRoutes; }
absl::Span<const PlainRoute> PlainRoutes() { return kPlainRoutes; }

std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  const auto hex = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size() || hex(text[i + 1]) < 0 || hex(text[i + 2]) < 0) return std::nullopt;
      c = static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
      if (c == '\0') return std::nullopt;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    decoded += c;
  }
  return decoded;
}

RouteMatch MatchRoute(std::string_view method, std::string_view path) {
  RouteMatch match;
  const std::vector<std::string> segments = absl::StrSplit(absl::string_view(path.data(), path.size()), '/');
  for (const Route& route : kRoutes) {
    const std::vector<std::string> pattern = absl::StrSplit(route.path, '/');
    if (pattern.size() != segments.size()) continue;
    std::map<std::string, std::string> variables;
    bool fits = true;
    for (size_t i = 0; i < pattern.size() && fits; ++i)
      fits = MatchSegment(pattern[i], segments[i], &variables);
    if (!fits) continue;
    if (method != route.method) {
      match.allowed.push_back(route.method);
      continue;
    }
    match.route = &route;
    match.variables = std::move(variables);
    return match;
  }
  return match;
}

}  // namespace tessera::services

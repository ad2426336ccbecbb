#include "services/cli/session.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/violation.h"
#include "proto/tessera/v1/yaml_text.h"
#include "services/cli/daemon_process.h"

namespace tessera::cli {

Style Session::style() const {
  Style style = environment.style;
  style.color = style.color && !no_color;
  return style;
}

bool Session::local() const {
  return connection.address.empty() && environment.variable("TESSERA_ADDRESS").value_or("").empty();
}

absl::StatusOr<Client*> Session::Connect() {
  absl::StatusOr<Endpoint> endpoint = ResolveEndpoint(connection, environment.variable);
  const bool gone = endpoint.ok() && endpoint->local && !DaemonAlive(*endpoint);
  if (absl::IsNotFound(endpoint.status()) || gone) {
    return absl::UnavailableError(absl::StrCat(
        "no daemon runs on this machine for ", connection.state_directory,
        "; 'tessera daemon start' or 'tessera train' starts one, and --address names one elsewhere"));
  }
  TESSERA_RETURN_IF_ERROR(endpoint.status());
  TESSERA_ASSIGN_OR_RETURN(const std::string token, ReadToken(*endpoint));
  TESSERA_ASSIGN_OR_RETURN(client_, Client::Make(*endpoint, token));
  return client_.get();
}

absl::StatusOr<Client*> Session::ConnectOrStart() {
  if (!local()) return Connect();
  DaemonOptions options;
  options.program = FindProgram(environment, "tesserad");
  options.state_directory = connection.state_directory;
  TESSERA_ASSIGN_OR_RETURN(StartedDaemon daemon, EnsureDaemon(options));
  if (daemon.started) {
    Say(absl::StrCat("started the daemon (process ", daemon.client->endpoint().pid, ", log ",
                     connection.state_directory, "/tesserad.log)"));
  }
  client_ = std::move(daemon.client);
  return client_.get();
}

void Session::Say(const std::string& line) const { *environment.err << line << "\n" << std::flush; }

int Session::Fail(const absl::Status& status) const {
  Say(ErrorText(status));
  return ExitCodeOf(status);
}

bool Session::PrintMessage(const google::protobuf::Message& message) const {
  if (output == "json") {
    *environment.out << spec::ToPrettyJson(message);
  } else if (output == "yaml") {
    *environment.out << spec::ToYaml(message);
  } else {
    return false;
  }
  environment.out->flush();
  return true;
}

bool Session::PrintJson(const nlohmann::ordered_json& value) const {
  if (!Structured()) return false;
  *environment.out << (output == "json" ? value.dump(2) + "\n" : spec::YamlText(value)) << std::flush;
  return true;
}

int Session::PrintRows(const std::vector<Column>& columns,
                       const std::vector<std::vector<std::string>>& rows) const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& row : rows) {
    nlohmann::ordered_json& item = list.emplace_back(nlohmann::ordered_json::object());
    for (size_t i = 0; i < columns.size(); ++i)
      item[absl::StrReplaceAll(columns[i].header, {{" ", "_"}})] = row[i];
  }
  if (PrintJson(list)) return kSucceeded;
  if (output == "name") {
    for (const auto& item : list) *environment.out << item.value("name", std::string()) << "\n";
    return kSucceeded;
  }
  const int width = environment.terminal ? environment.width() : 0;
  for (const auto& line : RenderTable(columns, rows, width, style())) *environment.out << line << "\n";
  return kSucceeded;
}

std::string ErrorText(const absl::Status& status) {
  const std::vector<spec::Violation> violations = spec::ViolationsFrom(status);
  if (violations.empty()) return absl::StrCat("tessera: ", status.message());
  // Query parameters and the like are of the request; the rest is the job's.
  const bool of_job = violations[0].path.empty() || absl::StartsWith(violations[0].path, "spec") ||
                      absl::StartsWith(violations[0].path, "name") ||
                      absl::StartsWith(violations[0].path, "metadata");
  std::string text = absl::StrCat("tessera: the ", of_job ? "job" : "request", " is not valid (",
                                  violations.size(), violations.size() == 1 ? " fault)" : " faults)");
  for (const auto& violation : violations) absl::StrAppend(&text, "\n  ", spec::ToLine(violation));
  return text;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kSucceeded;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kAlreadyExists:
      return kUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return kUnreachable;
    default:
      return kFailed;
  }
}

}  // namespace tessera::cli

// tessera daemon start, stop, status.
#include <memory>

#include "absl/strings/str_cat.h"
#include "services/cli/commands.h"
#include "services/cli/daemon_process.h"
#include "services/cli/display.h"

namespace tessera::cli {
namespace {

// What a script needs to talk to it; as text for people.
nlohmann::ordered_json Describe(const Session& session, const Endpoint& endpoint) {
  const std::string& state = session.connection.state_directory;
  return {{"running", true},
          {"pid", endpoint.pid},
          {"grpc", endpoint.grpc},
          {"rest", endpoint.rest},
          {"tokenFile", endpoint.token_file},
          {"stateDirectory", state},
          {"log", state + "/tesserad.log"}};
}

void PrintDaemon(const Session& session, const Endpoint& endpoint, const std::string& how) {
  *session.environment.out << absl::StrCat(
      "the daemon ", how, ", process ", endpoint.pid, "\n  gRPC   ", endpoint.grpc, "\n  REST   ",
      endpoint.rest, "\n  token  ", endpoint.token_file, "\n  state  ", session.connection.state_directory,
      "\n  log    ", session.connection.state_directory, "/tesserad.log\n");
}

int Start(Session& session) {
  DaemonOptions options;
  options.program = FindProgram(session.environment, "tesserad");
  options.state_directory = session.connection.state_directory;
  const absl::StatusOr<StartedDaemon> daemon = EnsureDaemon(options);
  if (!daemon.ok()) return session.Fail(daemon.status());
  const Endpoint& endpoint = daemon->client->endpoint();
  nlohmann::ordered_json facts = Describe(session, endpoint);
  facts["started"] = daemon->started;
  if (!session.PrintJson(facts))
    PrintDaemon(session, endpoint, daemon->started ? "was started" : "runs already");
  return kSucceeded;
}

int Status(Session& session) {
  const absl::StatusOr<std::unique_ptr<Client>> client = ConnectToDaemon(session.connection.state_directory);
  if (absl::IsNotFound(client.status())) {
    if (!session.PrintJson({{"running", false}, {"stateDirectory", session.connection.state_directory}})) {
      session.Say(absl::StrCat("no daemon runs for ", session.connection.state_directory));
    }
    return kUnreachable;
  }
  if (!client.ok()) return session.Fail(client.status());
  v1::ListTrainingJobsRequest request;
  request.set_namespace_("-");
  const auto jobs = (*client)->Call(&v1::JobService::Stub::ListTrainingJobs, request);
  if (!jobs.ok()) return session.Fail(jobs.status());
  int active = 0;
  for (const auto& job : jobs->training_jobs()) {
    if (!IsTerminal(job.status().state()) && job.status().state() != v1::JOB_STATE_SUSPENDED) ++active;
  }
  const bool more = !jobs->next_page_token().empty();
  nlohmann::ordered_json facts = Describe(session, (*client)->endpoint());
  facts["jobs"] = {{"listed", jobs->training_jobs_size()}, {"more", more}, {"active", active}};
  if (session.PrintJson(facts)) return kSucceeded;
  PrintDaemon(session, (*client)->endpoint(), "runs");
  *session.environment.out << absl::StrCat("  jobs   ", jobs->training_jobs_size(), more ? " and more" : "",
                                           ", ", active, " active\n");
  return kSucceeded;
}

int Stop(Session& session) {
  const absl::Status stopped = StopDaemon(session.connection.state_directory, absl::Seconds(30));
  if (!stopped.ok() && !absl::IsNotFound(stopped)) return session.Fail(stopped);
  if (session.PrintJson({{"running", false},
                         {"stopped", stopped.ok()},
                         {"stateDirectory", session.connection.state_directory}})) {
    return kSucceeded;
  }
  if (!stopped.ok()) {
    session.Say(std::string(stopped.message()));
    return kSucceeded;
  }
  *session.environment.out
      << "the daemon has ended; workers that run go on, and the next daemon finds them again\n";
  return kSucceeded;
}

void Add(CLI::App& daemon, Session& session, const char* name, const char* what, int (*run)(Session&)) {
  CLI::App* command = daemon.add_subcommand(name, what);
  command->footer(absl::StrCat("Example:\n  tessera daemon ", name, " --state-dir ~/tessera\n"));
  command->callback([&session, run] { session.action = [&session, run] { return run(session); }; });
}

}  // namespace

void AddDaemonCommands(CLI::App& app, Session& session) {
  CLI::App* daemon = app.add_subcommand("daemon", "The scheduler of this machine");
  daemon->require_subcommand(1);
  daemon->footer("Example:\n  tessera daemon status\n");
  Add(*daemon, session, "start", "Start it in the background unless it runs", Start);
  Add(*daemon, session, "stop", "End it; workers go on", Stop);
  Add(*daemon, session, "status", "Say whether it runs, and where it listens", Status);
}

}  // namespace tessera::cli

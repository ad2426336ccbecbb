// tessera logs, events, checkpoints: what was written down.
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/cli/commands.h"
#include "services/cli/named_command.h"
#include "services/cli/quantity.h"
#include "services/cli/table.h"

namespace tessera::cli {
namespace {

struct LogsArguments {
  std::string name;
  int rank = 0;
  int epoch = 0;
  bool follow = false;
};

int Logs(Session& session, const LogsArguments& arguments) {
  if (arguments.follow && session.Structured()) {
    return session.Fail(
        absl::InvalidArgumentError("--follow shows text as it comes; leave out -o, or --follow"));
  }
  std::string text;  // all of it, where it is one value
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  v1::GetLogsRequest request;
  request.set_namespace_(session.ns);
  request.set_name(arguments.name);
  request.set_rank(arguments.rank);
  request.set_epoch(arguments.epoch);
  Interrupts& interrupts = *session.environment.interrupts;
  const int before = interrupts.count();
  if (arguments.follow) session.environment.catch_interrupts();
  while (true) {
    const auto logs = (*client)->Call(&v1::JobService::Stub::GetLogs, request);
    if (!logs.ok()) return session.Fail(logs.status());
    if (session.Structured()) {
      text += logs->text();
    } else {
      *session.environment.out << logs->text() << std::flush;
    }
    const bool more = logs->next_offset() > request.offset();
    request.set_offset(logs->next_offset());
    if (more) continue;
    if (session.Structured()) {
      v1::GetLogsResponse whole = *logs;
      whole.set_text(text);
      session.PrintMessage(whole);
    }
    if (!arguments.follow || logs->complete()) return kSucceeded;
    interrupts.Wait(absl::Milliseconds(500));
    if (interrupts.count() != before) return kInterrupted;
  }
}

int Events(Session& session, const std::string& name) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  v1::ListEventsResponse all;
  v1::ListEventsRequest request;
  request.set_namespace_(session.ns);
  request.set_name(name);
  do {
    const auto page = (*client)->Call(&v1::JobService::Stub::ListEvents, request);
    if (!page.ok()) return session.Fail(page.status());
    all.mutable_events()->MergeFrom(page->events());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  if (session.PrintMessage(all)) return kSucceeded;
  std::vector<std::vector<std::string>> rows;
  for (const auto& event : all.events()) {
    const bool warning = event.type() == "Warning";
    rows.push_back({event.has_time()
                        ? absl::FormatTime("%Y-%m-%d %H:%M:%S", ToTime(event.time()), absl::LocalTimeZone())
                        : "-",
                    Paint(event.type(), warning ? Ink::kYellow : Ink::kPlain, session.style()),
                    event.reason(), event.message()});
  }
  const int width = session.environment.terminal ? session.environment.width() : 0;
  for (const auto& line :
       RenderTable({{"time"}, {"type", false, 1}, {"reason"}, {"message"}}, rows, width, session.style())) {
    *session.environment.out << line << "\n";
  }
  return kSucceeded;
}

int Checkpoints(Session& session, const std::string& name) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  v1::ListCheckpointsRequest request;
  request.set_namespace_(session.ns);
  request.set_name(name);
  const auto found = (*client)->Call(&v1::JobService::Stub::ListCheckpoints, request);
  if (!found.ok()) return session.Fail(found.status());
  if (session.PrintMessage(*found)) return kSucceeded;
  std::vector<std::vector<std::string>> rows;
  for (const auto& checkpoint : found->checkpoints()) {
    rows.push_back({absl::StrCat(checkpoint.step()), FormatBytes(checkpoint.bytes()),
                    absl::StrCat(checkpoint.workers()),
                    FormatClock(absl::Now() - ToTime(checkpoint.create_time())), checkpoint.path()});
  }
  return session.PrintRows({{"step", true}, {"size", true}, {"workers", true, 2}, {"age", true, 1}, {"path"}},
                           rows);
}

}  // namespace

void AddRecordCommands(CLI::App& app, Session& session) {
  CLI::App* logs = app.add_subcommand("logs", "Show what a worker wrote");
  auto arguments = std::make_shared<LogsArguments>();
  logs->add_option("NAME", arguments->name, "Name of the job")->required();
  logs->add_option("--rank", arguments->rank, "Of this worker; default 0");
  logs->add_option("--epoch", arguments->epoch, "Of this incarnation of the workers; default: the newest");
  logs->add_flag("-f,--follow", arguments->follow, "Go on until the worker has ended");
  logs->footer("Example:\n  tessera logs quickstart --rank 2 -f\n");
  logs->callback([&session, arguments] {
    session.action = [&session, arguments] { return Logs(session, *arguments); };
  });

  CLI::App* events = app.add_subcommand("events", "Show what happened to a job");
  auto name = std::make_shared<std::string>();
  events->add_option("NAME", *name, "Name of the job")->required();
  events->footer("Example:\n  tessera events quickstart\n");
  events->callback(
      [&session, name] { session.action = [&session, name] { return Events(session, *name); }; });

  AddNamedCommand(app, session, "checkpoints", "Show the complete checkpoints of a job",
                  "Example:\n  tessera checkpoints quickstart\n", Checkpoints);
}

}  // namespace tessera::cli

#include "services/cli/program.h"

#include <algorithm>
#include <sstream>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/tessera/v1/field_names.h"
#include "services/cli/commands.h"
#include "services/cli/contexts.h"
#include "services/cli/session.h"

namespace tessera::cli {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera train deploy/recipes/quickstart.yaml   start a scheduler here, train, report\n"
    "  tessera plan job.yaml                          what would it need?\n"
    "  tessera list && tessera logs -f quickstart\n\n"
    "Exit codes of train and watch: 0 succeeded, 1 failed, 2 wrong arguments or invalid job, 3 cancelled,\n"
    "4 suspended, 5 service unreachable or token refused, 130 interrupted. Other commands use 0, 1, 2, 5.\n\n"
    "With -o json or yaml standard output is for programs; train and watch print the job there at its end, "
    "and lines\n"
    "for people on standard error.\n\n"
    "The service: --address, --token-file and --ca, else TESSERA_ADDRESS, TESSERA_TOKEN_FILE and TESSERA_CA, "
    "else\n"
    "the context (--context, TESSERA_CONTEXT, 'tessera context use'), else the daemon of this machine, found "
    "by its\n"
    "state directory (--state-dir, TESSERA_STATE_DIR). --no-color or NO_COLOR turns colours off.\n";

void AddGlobalOptions(CLI::App& app, Session& session) {
  app.add_option("--address", session.connection.address,
                 "Service to talk to, host:port or https://host:port");
  app.add_option("--token-file", session.connection.token_file, "File with its bearer token");
  app.add_option("--ca", session.connection.ca_file,
                 "File with the certificate authority of an https service");
  app.add_option("--context", session.context, "Named service to talk to; see 'tessera context'");
  app.add_option("--state-dir", session.connection.state_directory, "State directory of the local daemon");
  app.add_option("-n,--namespace", session.ns, "Namespace of the job")->capture_default_str();
  app.add_option("-o,--output", session.output, "table, json, yaml or name")
      ->check(CLI::IsMember({"table", "json", "yaml", "name"}))
      ->capture_default_str();
  app.add_flag("--no-color", session.no_color, "No colours");
}

struct Program {
  explicit Program(const Environment& environment)
      : session(environment),
        app("Trains one model on machines with little memory and slow links.", "tessera") {
    app.fallthrough();
    app.require_subcommand(1);
    app.get_formatter()->column_width(34);
    app.footer(kFooter);
    AddGlobalOptions(app, session);
    AddTrainCommand(app, session);
    AddSubmitCommands(app, session);
    AddPlanCommands(app, session);
    AddBudgetCommands(app, session);
    AddJobCommands(app, session);
    AddLifecycleCommands(app, session);
    AddRecordCommands(app, session);
    AddNodeCommands(app, session);
    AddWorkerCommands(app, session);
    AddDaemonCommands(app, session);
    AddContextCommands(app, session);
    AddMachineCommands(app, session);
    AddCompletionCommand(app, session);
  }
  void Parse(const std::vector<std::string>& arguments) {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  }

  Session session;
  CLI::App app;
};

// CLI11 says of a word that is no command only that a command is missing. Empty: it is not about one.
std::string UnknownCommand(const CLI::App& app) {
  const CLI::App* within = &app;
  std::string path = app.get_name();  // "tessera daemon"
  while (!within->get_subcommands().empty()) {
    within = within->get_subcommands().front();
    absl::StrAppend(&path, " ", within->get_name());
  }
  const std::vector<const CLI::App*> known = within->get_subcommands([](const CLI::App*) { return true; });
  if (known.empty()) return "";
  std::vector<std::string> words = app.remaining();
  for (const std::string& more : within->remaining()) words.push_back(more);  // the same one's, at times
  const auto word = std::find_if(words.begin(), words.end(),
                                 [](const std::string& text) { return !absl::StartsWith(text, "-"); });
  if (word == words.end()) return "";
  std::vector<std::string> names;
  for (const CLI::App* command : known) names.push_back(command->get_name());
  const std::string near = spec::Nearest(*word, names);
  return absl::StrCat(
      path, " has no command '", *word, "'",
      near.empty() ? absl::StrCat("; see '", path, " --help'") : absl::StrCat("; did you mean ", near, "?"),
      "\n");
}

void CollectExamples(const CLI::App& app, std::vector<std::string>* examples) {
  for (absl::string_view line : absl::StrSplit(app.get_footer(), '\n')) {
    line = absl::StripLeadingAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, "tessera ")) examples->emplace_back(line);
  }
  for (const CLI::App* command : app.get_subcommands({})) CollectExamples(*command, examples);
}

}  // namespace

std::vector<std::string> HelpExamples(const Environment& environment) {
  std::vector<std::string> examples;
  CollectExamples(Program(environment).app, &examples);
  return examples;
}

bool IsCommandLine(const std::vector<std::string>& arguments, const Environment& environment) {
  try {
    Program(environment).Parse(arguments);
    return true;
  } catch (const CLI::ParseError&) {
    return false;
  }
}

int RunTessera(const std::vector<std::string>& arguments, const Environment& environment) {
  Program program(environment);
  Session& session = program.session;
  try {
    program.Parse(arguments);
  } catch (const CLI::ParseError& error) {
    const std::string unknown = UnknownCommand(program.app);
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) && !unknown.empty()) {
      *environment.err << unknown;
      return kUsage;
    }
    return program.app.exit(error, *environment.out, *environment.err) == 0 ? kSucceeded : kUsage;
  }
  if (session.connection.state_directory.empty()) {
    session.connection.state_directory = DefaultStateDirectory(environment.variable);
  }
  if (absl::Status status = ApplyContext(session.context, environment.variable, &session.connection);
      !status.ok()) {
    // A command that mends the contexts, or asks no service, works all the same.
    const std::string chosen = program.app.get_subcommands().front()->get_name();
    if (chosen != "context" && chosen != "completion" && chosen != "version") return session.Fail(status);
  }
  return session.action();
}

}  // namespace tessera::cli

// tessera data prepare, eval, generate, export: what needs tensors is done by the
// program tessera-worker, so that this one starts without LibTorch.
#include <memory>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "services/cli/commands.h"
#include "services/cli/request.h"

namespace tessera::cli {
namespace {

int RunWorker(Session& session, const std::string& command, std::vector<std::string> arguments) {
  const std::string worker = FindProgram(session.environment, "tessera-worker");
  if (worker.empty()) {
    session.Say(absl::StrCat("tessera: '", command,
                             "' is done by the program tessera-worker, which is neither in ",
                             session.environment.program_directory,
                             " nor in PATH; build it (./dev build) or install it beside tessera"));
    return kFailed;
  }
  arguments.insert(arguments.begin(), command);
  return session.environment.execute(worker, arguments);
}

// The job's name becomes the folder it stands for: for `export` its newest checkpoint, else the
// exported model. `eval` reads the job's validation data unless told otherwise.
absl::StatusOr<std::vector<std::string>> ReplaceJob(Session& session, const std::string& command,
                                                    std::vector<std::string> arguments) {
  TESSERA_ASSIGN_OR_RETURN(Client * client, session.Connect());
  TESSERA_ASSIGN_OR_RETURN(const v1::TrainingJob job, GetJob(*client, session.ns, arguments[0]));
  const bool checkpoint = command == "export";
  const std::string& folder = checkpoint ? job.status().checkpoint() : job.status().exported_model();
  if (folder.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("the job ", job.name(), " has no ",
                                                      checkpoint ? "checkpoint" : "exported model", " yet"));
  }
  arguments[0] = folder;
  arguments.insert(arguments.begin(), checkpoint ? "--checkpoint" : "--model");
  if (command == "eval" && !absl::c_linear_search(arguments, "--data")) {
    arguments.insert(arguments.end(), {"--data", job.spec().data().validation()});
  }
  return arguments;
}

int RunOnModel(Session& session, const std::string& command, std::vector<std::string> arguments) {
  if (!arguments.empty() && !absl::StartsWith(arguments[0], "-")) {
    absl::StatusOr<std::vector<std::string>> replaced = ReplaceJob(session, command, std::move(arguments));
    if (!replaced.ok()) return session.Fail(replaced.status());
    arguments = *std::move(replaced);
  }
  return RunWorker(session, command, std::move(arguments));
}

// A command whose arguments, --help among them, belong to the other program.
CLI::App* AddPassing(CLI::App& app, const char* name, const char* what, const char* footer) {
  CLI::App* command = app.add_subcommand(name, what);
  command->set_help_flag();
  command->prefix_command();
  command->fallthrough(false);
  command->footer(footer);
  return command;
}

void AddModelCommand(CLI::App& app, Session& session, const std::string& name, const char* what,
                     const char* footer) {
  CLI::App* command = AddPassing(app, name.c_str(), what, footer);
  command->callback([&session, command, name] {
    session.action = [&session, command, name] {
      const std::vector<std::string> arguments = command->remaining();
      if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
        *session.environment.out << "tessera " << name
                                 << (name == "export" ? " JOB|--checkpoint DIR" : " JOB|--model DIR")
                                 << " [options]\n"
                                 << command->get_footer()
                                 << "Global options, such as --state-dir, stand before " << name
                                 << ".\n\nOptions, as tessera-worker says them:\n"
                                 << std::flush;
      }
      return RunOnModel(session, name, arguments);
    };
  });
}

}  // namespace

void AddWorkerCommands(CLI::App& app, Session& session) {
  CLI::App* data = app.add_subcommand("data", "Make token shards of text");
  data->require_subcommand(1);
  data->footer("Example:\n  tessera data prepare --input book.txt --tokenizer byte --out data/book\n");
  CLI::App* prepare =
      AddPassing(*data, "prepare", "Tokenise text into shards",
                 "Example:\n  tessera data prepare --input book.txt --tokenizer byte --out data/book\n");
  prepare->callback([&session, prepare] {
    session.action = [&session, prepare] { return RunWorker(session, "prepare", prepare->remaining()); };
  });
  AddModelCommand(app, session, "eval", "Evaluate a model or a job's result",
                  "Example:\n  tessera eval quickstart\n");
  AddModelCommand(app, session, "generate", "Let a model write text",
                  "Example:\n  tessera generate quickstart --prompt 'The '\n");
  AddModelCommand(app, session, "export", "Write a checkpoint as a Hugging Face folder",
                  "Example:\n  tessera export quickstart --out exported\n");
}

}  // namespace tessera::cli

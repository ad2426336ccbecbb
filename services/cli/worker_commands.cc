// tessera data prepare, eval, generate, export: what needs tensors is done by the
// program tessera-worker, so that this one starts without LibTorch.
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "services/cli/commands.h"
#include "services/cli/request.h"

namespace tessera::cli {
namespace {

int RunWorker(Session& session, const std::string& command, std::vector<std::string> arguments) {
  if (session.output == "json" && command == "eval") {
    if (!absl::c_linear_search(arguments, "--json")) arguments.emplace_back("--json");
  } else if (session.Structured()) {
    return session.Fail(
        absl::InvalidArgumentError(absl::StrCat("'", command, "' has no -o ", session.output,
                                                command == "eval" ? "; it has -o json" : "; leave it out")));
  }
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

// Names of jobs have no slash.
bool IsFolder(const std::string& argument) {
  return absl::StrContains(argument, '/') || argument == "." || argument == "..";
}

// `eval` of a job repeats the job's own evaluation, unless told otherwise.
void AddJobsEvaluation(const v1::TrainingJobSpec& spec, std::vector<std::string>& arguments) {
  const std::pair<const char*, std::string> settings[] = {
      {"--data", spec.data().validation()},
      {"--sequence-length", absl::StrCat(spec.data().sequence_length())},
      {"--tokens", absl::StrCat(spec.evaluation().tokens())},
  };
  for (const auto& [option, value] : settings) {
    const bool given = absl::c_any_of(arguments, [option = option](const std::string& argument) {
      return argument == option || absl::StartsWith(argument, absl::StrCat(option, "="));
    });
    const bool unset = value.empty() || (value == "0" && std::string_view(option) == "--sequence-length");
    if (!given && !unset) arguments.insert(arguments.end(), {option, value});
  }
}

// The job's name becomes the folder it stands for: for `export` its newest checkpoint, else the
// exported model, or the newest checkpoint while there is none.
absl::StatusOr<std::vector<std::string>> ReplaceJob(Session& session, const std::string& command,
                                                    std::vector<std::string> arguments) {
  const bool checkpoint = command == "export";
  const char* option = checkpoint ? "--checkpoint" : "--model";
  if (IsFolder(arguments[0])) {
    arguments.insert(arguments.begin(), option);
    return arguments;
  }
  TESSERA_ASSIGN_OR_RETURN(Client * client, session.Connect());
  const absl::StatusOr<v1::TrainingJob> found = GetJob(*client, session.ns, arguments[0]);
  if (absl::IsNotFound(found.status()) && std::filesystem::is_directory(arguments[0])) {
    return absl::NotFoundError(
        absl::StrCat(found.status().message(), "; the folder of that name is ./", arguments[0]));
  }
  if (!found.ok()) return found.status();
  const v1::TrainingJob& job = *found;
  // A checkpoint stands for a model as well.
  const std::string& folder = checkpoint || job.status().exported_model().empty()
                                  ? job.status().checkpoint()
                                  : job.status().exported_model();
  if (folder.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job ", job.name(), " has no ",
                     checkpoint ? "checkpoint" : "exported model and no checkpoint", " yet"));
  }
  arguments[0] = folder;
  arguments.insert(arguments.begin(), option);
  if (command == "eval") AddJobsEvaluation(job.spec(), arguments);
  return arguments;
}

int RunOnModel(Session& session, const std::string& command, std::vector<std::string> arguments) {
  if (arguments.empty()) {
    session.Say(
        absl::StrCat("tessera: name a job or a folder: tessera ", command, " JOB|DIR (--help tells more)"));
    return kUsage;
  }
  if (!absl::StartsWith(arguments[0], "-")) {
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
        *session.environment.out << "tessera " << name << " JOB|DIR"
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
  CLI::App* info = AddPassing(*data, "info", "Tell what a data set holds and whether it is whole",
                              "Example:\n  tessera data info data/book\n");
  info->callback([&session, info] {
    session.action = [&session, info] { return RunWorker(session, "info", info->remaining()); };
  });
  CLI::App* prepare =
      AddPassing(*data, "prepare", "Tokenise text into shards",
                 "Example:\n  tessera data prepare --input book.txt --tokenizer byte --out data/book\n");
  prepare->callback([&session, prepare] {
    session.action = [&session, prepare] { return RunWorker(session, "prepare", prepare->remaining()); };
  });
  AddModelCommand(
      app, session, "eval", "Evaluate a model or a job's result",
      "DIR, recognised by a slash, is a folder with a model of Hugging Face's layout, or a checkpoint. A "
      "job is evaluated\n"
      "on its validation data, as many tokens and as long samples as it evaluates itself.\n"
      "Examples:\n"
      "  tessera eval quickstart\n"
      "  tessera eval quickstart --data 'data/other-*.bin' --tokens 0\n"
      "  tessera eval ./exported --data data\n"
      "  tessera eval ./exported --task arc_easy=arc_easy.jsonl --task boolq=boolq.jsonl --output "
      "results.json\n");
  AddModelCommand(
      app, session, "generate", "Let a model write text",
      "DIR, recognised by a slash, is a folder with a model and tokenizer as `tessera export` writes them.\n"
      "Examples:\n"
      "  tessera generate quickstart --prompt 'Water, n. '\n"
      "  tessera generate ./exported --prompt 'The ' --max-tokens 500 --temperature 0.7 --seed 2\n");
  AddModelCommand(app, session, "export", "Write a checkpoint as a Hugging Face folder",
                  "A job's newest checkpoint, or the one in DIR, recognised by a slash.\n"
                  "Examples:\n"
                  "  tessera export quickstart --out exported\n"
                  "  tessera export ./checkpoints/step-00000100 --out exported --overwrite\n");
}

}  // namespace tessera::cli

// tessera completion, version.
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/cli/commands.h"

namespace tessera::cli {
namespace {

// Commands and options that may follow `app`.
std::string Words(const CLI::App& app, bool with_global) {
  std::vector<std::string> words;
  for (const CLI::App* command : app.get_subcommands({})) words.push_back(command->get_name());
  for (const CLI::App* scope = &app; scope != nullptr; scope = with_global ? scope->get_parent() : nullptr) {
    for (const CLI::Option* option : scope->get_options()) {
      for (const auto& name : option->get_lnames()) words.push_back("--" + name);
    }
    if (!with_global) break;
  }
  return absl::StrJoin(words, " ");
}

bool TakesJobName(const CLI::App& app) {
  const std::string& name = app.get_name();
  return app.get_option_no_throw("NAME") != nullptr || name == "eval" || name == "generate" ||
         name == "export";
}

// One case per command: what may follow it. The same text serves bash and, by
// bashcompinit, zsh, where path, words and commands are special and so no names for us.
void AddCases(const CLI::App& app, const std::string& path, std::string* script) {
  const std::string names = TakesJobName(app) ? " $(tessera list -o name 2>/dev/null)" : "";
  absl::StrAppend(script, "    '", path, "') candidates=\"", Words(app, true), names, "\" ;;\n");
  for (const CLI::App* command : app.get_subcommands({})) {
    AddCases(*command, absl::StrCat(path, path.empty() ? "" : " ", command->get_name()), script);
  }
}

std::string Script(const CLI::App& app, const std::string& shell) {
  std::string script;
  if (shell == "zsh") script = "autoload -U +X bashcompinit && bashcompinit\n";
  absl::StrAppend(&script,
                  "_tessera() {\n"
                  "  local current=\"${COMP_WORDS[COMP_CWORD]}\" command='' candidates='' word known=' ");
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
    for (const CLI::App* below : command->get_subcommands({})) names.push_back(below->get_name());
  }
  absl::StrAppend(&script, absl::StrJoin(names, " "),
                  " '\n"
                  "  for word in \"${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}\"; do\n"
                  "    [[ $known == *\" $word \"* ]] && command=\"${command:+$command }$word\"\n"
                  "  done\n"
                  "  case \"$command\" in\n");
  AddCases(app, "", &script);
  absl::StrAppend(&script,
                  "  esac\n"
                  "  COMPREPLY=($(compgen -W \"$candidates\" -- \"$current\"))\n"
                  "}\n"
                  "complete -o default -F _tessera tessera\n");
  return script;
}

}  // namespace

void AddCompletionCommand(CLI::App& app, Session& session) {
  CLI::App* completion = app.add_subcommand("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  completion->add_option("SHELL", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  completion->footer("Example:\n  source <(tessera completion bash)\n");
  completion->callback([&session, &app, shell] {
    session.action = [&session, &app, shell] {
      *session.environment.out << Script(app, *shell);
      return static_cast<int>(kSucceeded);
    };
  });
  CLI::App* version = app.add_subcommand("version", "Print the version");
  version->footer("Example:\n  tessera version\n");
  version->callback([&session] {
    session.action = [&session] {
      if (session.PrintJson({{"version", TESSERA_VERSION}})) return static_cast<int>(kSucceeded);
      *session.environment.out << "tessera " << TESSERA_VERSION << "\n";
      return static_cast<int>(kSucceeded);
    };
  });
}

}  // namespace tessera::cli

#include "services/cli/named_command.h"

#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tessera::cli {

void AddNamedCommand(CLI::App& app, Session& session, const char* name, const char* what, const char* footer,
                     int (*run)(Session&, const std::string&)) {
  CLI::App* command = app.add_subcommand(name, what);
  auto job = std::make_shared<std::string>();
  command->add_option("NAME", *job, "Name of the job")->required();
  command->footer(footer);
  command->callback(
      [&session, job, run] { session.action = [&session, job, run] { return run(session, *job); }; });
}

CLI::Validator AtLeastOne() {
  return CLI::Validator(
      [](std::string& text) {
        int64_t value = 0;
        if (absl::SimpleAtoi(text, &value) && value >= 1) return std::string();
        return absl::StrCat("'", text, "' is not a whole number from 1");
      },
      "");
}

}  // namespace tessera::cli

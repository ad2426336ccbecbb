// tessera init, doctor: before the first job.
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/cli/commands.h"
#include "services/cli/doctor.h"
#include "services/cli/init_template.h"

namespace tessera::cli {
namespace {

int Init(Session& session, const std::string& file, const std::string& preset, bool force) {
  const std::string path =
      (std::filesystem::path(session.environment.working_directory) / file).lexically_normal().string();
  // `tessera init llama-1m` means the model, and would make a file of that name with another one in it.
  if (!absl::EndsWith(file, ".yaml") && !absl::EndsWith(file, ".yml")) {
    return session.Fail(absl::InvalidArgumentError(
        absl::StrCat("'", file, "' is not the name of a YAML file: give it as in tessera init ", file,
                     ".yaml, or the model as in tessera init job.yaml --preset ", file)));
  }
  std::error_code error;
  if (!force && std::filesystem::exists(path, error)) {
    return session.Fail(absl::AlreadyExistsError(absl::StrCat(path, " exists; --force writes over it")));
  }
  std::ofstream out(path, std::ios::trunc);
  out << InitTemplate(std::filesystem::path(file).stem().string(), preset) << std::flush;
  if (!out) return session.Fail(absl::FailedPreconditionError(absl::StrCat("cannot write ", path)));
  if (session.PrintJson({{"file", path}, {"preset", preset}})) return kSucceeded;
  *session.environment.out << absl::StrCat("wrote ", path, "; next: tessera validate ", file, "\n");
  return kSucceeded;
}

int Doctor(Session& session) {
  const auto findings = ExamineMachine(session.environment, session.connection.state_directory);
  bool bad = false;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    const char* health = finding.health == Health::kGood   ? "good"
                         : finding.health == Health::kNote ? "note"
                                                           : "bad";
    bad = bad || finding.health == Health::kBad;
    list.push_back({{"subject", finding.subject},
                    {"health", health},
                    {"found", finding.found},
                    {"advice", finding.advice}});
  }
  if (!session.PrintJson(list)) {
    std::vector<std::vector<std::string>> rows;
    for (const Finding& finding : findings) {
      const auto [word, ink] = finding.health == Health::kGood   ? std::pair("ok", Ink::kGreen)
                               : finding.health == Health::kNote ? std::pair("note", Ink::kYellow)
                                                                 : std::pair("bad", Ink::kRed);
      rows.push_back({Paint(word, ink, session.style()), finding.subject, finding.found});
      if (!finding.advice.empty()) rows.push_back({"", "", "-> " + finding.advice});
    }
    for (const auto& line : RenderTable({{""}, {"what"}, {"found"}}, rows, 0, session.style())) {
      *session.environment.out << line << "\n";
    }
  }
  return bad ? kFailed : kSucceeded;
}

}  // namespace

void AddMachineCommands(CLI::App& app, Session& session) {
  CLI::App* init = app.add_subcommand("init", "Write a commented job file to begin with");
  auto file = std::make_shared<std::string>("job.yaml");
  auto preset = std::make_shared<std::string>("llama-8m");
  auto force = std::make_shared<bool>(false);
  init->add_option("FILE", *file, "Where it goes")->capture_default_str();
  init->add_option("--preset", *preset, "Model")->capture_default_str();
  init->add_flag("--force", *force, "Write over a file that is there");
  init->footer("Example:\n  tessera init job.yaml --preset llama-1m\n");
  init->callback([&session, file, preset, force] {
    session.action = [&session, file, preset, force] { return Init(session, *file, *preset, *force); };
  });

  CLI::App* doctor = app.add_subcommand("doctor", "Look at this machine and say what to do");
  doctor->footer("Exits with 1 when something is bad.\n\nExample:\n  tessera doctor -o json\n");
  doctor->callback([&session] { session.action = [&session] { return Doctor(session); }; });
}

}  // namespace tessera::cli

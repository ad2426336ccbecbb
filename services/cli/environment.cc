#include "services/cli/environment.h"

#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

std::vector<char*> Argv(const std::string& path, const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  return argv;
}

// Threads of the programs started here compute for microseconds at a time. Spinning between that, they
// take the cores from each other and from the training that runs beside them: ten times as slow.
void WaitWithoutSpinning() { setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0); }

int Execute(const std::string& path, const std::vector<std::string>& arguments) {
  std::cout.flush();
  WaitWithoutSpinning();
  execv(path.c_str(), Argv(path, arguments).data());
  std::cerr << "tessera: cannot start " << path << ": " << std::strerror(errno) << "\n";
  return 1;
}

int Run(const std::string& path, const std::vector<std::string>& arguments) {
  std::cout.flush();
  WaitWithoutSpinning();
  pid_t child = 0;
  if (posix_spawn(&child, path.c_str(), nullptr, nullptr, Argv(path, arguments).data(), environ) != 0)
    return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Columns and rows; of a pipe, what COLUMNS and LINES say.
std::pair<int, int> TerminalSize() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return {size.ws_col, size.ws_row};
  const auto number = [](const char* name, int otherwise) {
    const char* text = std::getenv(name);
    int value = 0;
    return text != nullptr && absl::SimpleAtoi(text, &value) && value > 0 ? value : otherwise;
  };
  return {number("COLUMNS", 100), number("LINES", 24)};
}

bool SpeaksUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string lower = absl::AsciiStrToLower(value);
    return absl::StrContains(lower, "utf-8") || absl::StrContains(lower, "utf8");
  }
  return false;
}

}  // namespace

std::string FindProgram(const Environment& environment, const std::string& program) {
  std::vector<std::string> folders = {environment.program_directory};
  const std::string path = environment.variable("PATH").value_or("");
  for (absl::string_view folder : absl::StrSplit(path, ':', absl::SkipEmpty())) folders.emplace_back(folder);
  for (const auto& folder : folders) {
    const fs::path candidate = fs::path(folder) / program;
    std::error_code error;
    if (fs::is_regular_file(candidate, error) && access(candidate.c_str(), X_OK) == 0)
      return candidate.string();
  }
  return "";
}

Environment ProcessEnvironment(Interrupts* interrupts) {
  Environment environment;
  environment.out = &std::cout;
  environment.err = &std::cerr;
  environment.terminal = isatty(STDOUT_FILENO) == 1;
  const char* term = std::getenv("TERM");
  if (term != nullptr && std::strcmp(term, "dumb") == 0) environment.terminal = false;
  const char* no_color = std::getenv("NO_COLOR");
  environment.style.color = environment.terminal && (no_color == nullptr || *no_color == '\0');
  environment.style.unicode = SpeaksUtf8();
  environment.width = [] { return TerminalSize().first; };
  environment.height = [] { return TerminalSize().second; };
  environment.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  std::error_code error;
  environment.program_directory = fs::read_symlink("/proc/self/exe", error).parent_path().string();
  environment.working_directory = fs::current_path(error).string();
  environment.interrupts = interrupts;
  environment.catch_interrupts = [interrupts] { interrupts->HandleSignals(); };
  environment.execute = Execute;
  environment.run = Run;
  return environment;
}

}  // namespace tessera::cli

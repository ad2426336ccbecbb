#include "services/cli/daemon_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

std::string LogPath(const std::string& state_directory) { return state_directory + "/tesserad.log"; }

int OpenProcess(int64_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)); }

// Whether the process behind `fd` ended within `timeout`.
bool Ended(int fd, absl::Duration timeout) {
  pollfd waiting = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) > 0;
}

// Name and state as the kernel has them, "pid (name) state ...": neither a recycled process id nor one
// that ended and was not waited for yet must be taken for a daemon.
bool IsDaemon(int64_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return false;
  const size_t open = line.find('('), close = line.rfind(") ");
  if (open == std::string::npos || close == std::string::npos || close + 2 >= line.size()) return false;
  const char state = line[close + 2];
  return absl::StartsWith(line.substr(open + 1), "tesserad") && state != 'Z' && state != 'X';
}

absl::StatusOr<pid_t> Spawn(const DaemonOptions& options) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const absl::Cleanup free_files = [&] { posix_spawn_file_actions_destroy(&files); };
  const std::string log = LogPath(options.state_directory);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  // It outlives whoever started it: it must hold none of their files, pipes, locks or folders.
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawn_file_actions_addchdir_np(&files, options.state_directory.c_str());

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const absl::Cleanup free_attributes = [&] { posix_spawnattr_destroy(&attributes); };
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  sigset_t defaults, mask;
  sigemptyset(&defaults);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) sigaddset(&defaults, number);
  sigemptyset(&mask);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setsigmask(&attributes, &mask);

  const std::string program = fs::absolute(options.program).string();
  std::vector<std::string> arguments = {program, "--state-dir", fs::absolute(options.state_directory)};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (const int error = posix_spawn(&pid, program.c_str(), &files, &attributes, argv.data(), environ)) {
    return absl::UnavailableError(absl::StrCat("cannot start ", options.program, ": ", std::strerror(error)));
  }
  return pid;
}

absl::Status DidNotComeUp(const DaemonOptions& options, const std::string& what) {
  return absl::UnavailableError(
      absl::StrCat("tesserad ", what, "; the end of ", LogPath(options.state_directory), ":\n  ",
                   absl::StrJoin(LastLines(LogPath(options.state_directory), 10), "\n  ")));
}

// A daemon that was found may be about to end and no longer answer: then its end is waited for.
absl::StatusOr<std::unique_ptr<Client>> AwaitAnswerOrEnd(const DaemonOptions& options) {
  const absl::Time deadline = absl::Now() + options.patience;
  while (true) {
    absl::StatusOr<std::unique_ptr<Client>> running = ConnectToDaemon(options.state_directory);
    if (running.ok() || !absl::IsUnavailable(running.status()) || absl::Now() >= deadline) return running;
    const absl::StatusOr<Endpoint> endpoint = ReadEndpoint(options.state_directory);
    const int process = endpoint.ok() ? OpenProcess(endpoint->pid) : -1;
    if (process < 0) continue;
    Ended(process, absl::Milliseconds(200));
    close(process);
  }
}

// Until the daemon `pid` answers, ends, or patience does.
absl::StatusOr<std::unique_ptr<Client>> AwaitDaemon(const DaemonOptions& options, pid_t pid) {
  const int process = OpenProcess(pid);
  const absl::Cleanup close_process = [process] {
    if (process >= 0) close(process);
  };
  const absl::Time deadline = absl::Now() + options.patience;
  absl::Status last;
  while (absl::Now() < deadline) {
    absl::StatusOr<Endpoint> endpoint = ReadEndpoint(options.state_directory);
    if (endpoint.ok() && endpoint->pid == pid) {
      absl::StatusOr<std::unique_ptr<Client>> client = ConnectToDaemon(options.state_directory);
      if (client.ok()) return client;
      last = client.status();
    }
    if (process >= 0 && Ended(process, absl::Milliseconds(30))) {
      int status = 0;
      waitpid(pid, &status, 0);
      return DidNotComeUp(options, WIFEXITED(status)
                                       ? absl::StrCat("ended with exit code ", WEXITSTATUS(status))
                                       : absl::StrCat("was killed by signal ", WTERMSIG(status)));
    }
  }
  return DidNotComeUp(options, absl::StrCat("does not answer after ", absl::FormatDuration(options.patience),
                                            last.ok() ? "" : absl::StrCat(" (", last.message(), ")")));
}

}  // namespace

bool DaemonAlive(const Endpoint& endpoint) {
  if (endpoint.pid <= 0) return false;
  waitpid(static_cast<pid_t>(endpoint.pid), nullptr, WNOHANG);  // one of our own that ended is not alive
  return kill(static_cast<pid_t>(endpoint.pid), 0) == 0 && IsDaemon(endpoint.pid);
}

absl::StatusOr<std::unique_ptr<Client>> ConnectToDaemon(const std::string& state_directory) {
  absl::StatusOr<Endpoint> endpoint = ReadEndpoint(state_directory);
  if (!endpoint.ok()) return absl::NotFoundError(endpoint.status().message());
  if (!DaemonAlive(*endpoint)) {
    return absl::NotFoundError(absl::StrCat("no daemon runs for ", state_directory));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string token, ReadToken(*endpoint));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Make(*endpoint, token));
  v1::ListTrainingJobsRequest request;
  request.set_namespace_("-");
  request.set_page_size(1);
  TESSERA_RETURN_IF_ERROR(
      client->Call(&v1::JobService::Stub::ListTrainingJobs, request, absl::Seconds(5)).status());
  return client;
}

absl::StatusOr<StartedDaemon> EnsureDaemon(const DaemonOptions& options) {
  std::error_code error;
  if (fs::create_directories(options.state_directory, error)) {
    fs::permissions(options.state_directory, fs::perms::owner_all, error);
  }
  if (!fs::is_directory(options.state_directory)) {
    return absl::UnavailableError(
        absl::StrCat("cannot create the state directory ", options.state_directory, ": ", error.message()));
  }
  const int lock =
      open((options.state_directory + "/start.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const absl::Cleanup unlock = [lock] {
    if (lock >= 0) close(lock);
  };
  if (lock < 0 || flock(lock, LOCK_EX) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot lock ", options.state_directory, "/start.lock: ", std::strerror(errno)));
  }
  absl::StatusOr<std::unique_ptr<Client>> running = AwaitAnswerOrEnd(options);
  if (running.ok()) return StartedDaemon{*std::move(running), false};
  if (!absl::IsNotFound(running.status())) return running.status();
  if (options.program.empty()) {
    return absl::UnavailableError("no daemon runs, and tesserad is neither beside this program nor in PATH");
  }
  TESSERA_ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, AwaitDaemon(options, pid));
  return StartedDaemon{std::move(client), true};
}

absl::Status StopDaemon(const std::string& state_directory, absl::Duration patience) {
  absl::StatusOr<Endpoint> endpoint = ReadEndpoint(state_directory);
  if (!endpoint.ok() || !DaemonAlive(*endpoint)) {
    return absl::NotFoundError(absl::StrCat("no daemon runs for ", state_directory));
  }
  const int process = OpenProcess(endpoint->pid);
  if (process < 0) return absl::OkStatus();  // gone meanwhile
  const absl::Cleanup close_process = [process] { close(process); };
  if (kill(static_cast<pid_t>(endpoint->pid), SIGTERM) != 0 && errno != ESRCH) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot end tesserad, process ", endpoint->pid, ": ", std::strerror(errno)));
  }
  if (!Ended(process, patience)) {
    return absl::DeadlineExceededError(absl::StrCat("tesserad, process ", endpoint->pid,
                                                    ", did not end within ", absl::FormatDuration(patience)));
  }
  return absl::OkStatus();
}

std::vector<std::string> LastLines(const std::string& path, int lines) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::streamoff size = file.tellg(), start = std::max<std::streamoff>(0, size - 16384);
  file.seekg(start);
  std::string text(static_cast<size_t>(size - start), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  std::vector<std::string> all = absl::StrSplit(text, '\n', absl::SkipEmpty());
  if (all.size() > static_cast<size_t>(lines)) all.erase(all.begin(), all.end() - lines);
  return all;
}

}  // namespace tessera::cli

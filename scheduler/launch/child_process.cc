#include "scheduler/launch/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kMostOutput = 64u << 20;
constexpr int kLookMilliseconds = 50;  // a stop or a timeout is noticed within

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Descriptor() { Close(); }
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

struct Pipe {
  Descriptor read, write;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  return Pipe{Descriptor(fds[0]), Descriptor(fds[1])};
}

std::vector<std::string> Environment(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals != nullptr && !extra.contains(std::string(*entry, static_cast<size_t>(equals - *entry))))
      all.emplace_back(*entry);
  }
  for (const auto& [name, value] : extra) all.push_back(absl::StrCat(name, "=", value));
  return all;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

absl::StatusOr<pid_t> Spawn(const ProcessRequest& request, int in, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  absl::Cleanup release = [&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  };
  // Copies above 2, so that none of the three is overwritten before it is in its place.
  const Descriptor sources[] = {Descriptor(::fcntl(in, F_DUPFD_CLOEXEC, 3)),
                                Descriptor(::fcntl(out, F_DUPFD_CLOEXEC, 3)),
                                Descriptor(::fcntl(err, F_DUPFD_CLOEXEC, 3))};
  for (int target = 0; target < 3; ++target) {
    if (sources[target].get() < 0) return absl::ErrnoToStatus(errno, "duplicating a descriptor");
    posix_spawn_file_actions_adddup2(&actions, sources[target].get(), target);
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);

  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  const std::vector<std::string> env = Environment(request.env);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, request.arguments[0].c_str(), &actions, &attributes,
                                  Pointers(request.arguments).data(), Pointers(env).data());
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("starting '", request.arguments[0], "'"));
  return pid;
}

// Copies one readable descriptor; false at its end.
absl::StatusOr<bool> Drain(int fd, std::string& into) {
  char buffer[65536];
  const ssize_t got = ::read(fd, buffer, sizeof buffer);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  into.append(buffer, static_cast<size_t>(got));
  if (into.size() > kMostOutput) return absl::ResourceExhaustedError("more than 64 MB of output");
  return true;
}

absl::Status CheckPatience(absl::Time deadline, const std::stop_token& stop) {
  if (stop.stop_requested()) return absl::CancelledError("the service is stopping");
  return absl::Now() < deadline ? absl::OkStatus() : absl::DeadlineExceededError("");
}

absl::Status Converse(Descriptor to, Descriptor out, Descriptor err, const std::string& input,
                      absl::Time deadline, const std::stop_token& stop, ProcessOutput& output) {
  ::fcntl(to.get(), F_SETFL, O_NONBLOCK);
  size_t sent = 0;
  if (input.empty()) to.Close();
  while (out.get() >= 0 || err.get() >= 0) {
    TESSERA_RETURN_IF_ERROR(CheckPatience(deadline, stop));
    pollfd fds[3] = {{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}, {to.get(), POLLOUT, 0}};
    const int ready = ::poll(fds, 3, kLookMilliseconds);
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    if (ready <= 0) continue;
    if (fds[0].revents != 0) {
      TESSERA_ASSIGN_OR_RETURN(const bool more, Drain(out.get(), output.out));
      if (!more) out.Close();
    }
    if (fds[1].revents != 0) {
      TESSERA_ASSIGN_OR_RETURN(const bool more, Drain(err.get(), output.err));
      if (!more) err.Close();
    }
    if (fds[2].revents != 0) {
      const ssize_t put = ::write(to.get(), input.data() + sent, input.size() - sent);
      if (put > 0) sent += static_cast<size_t>(put);
      // A program that does not read its input ends by itself; its own words count.
      if (sent == input.size() || (put < 0 && errno != EAGAIN && errno != EINTR)) to.Close();
    }
  }
  return absl::OkStatus();
}

// A program may close its outputs long before it ends.
absl::Status AwaitExit(pid_t pid, absl::Time deadline, const std::stop_token& stop, int& exit_status) {
  while (true) {
    const pid_t ended = ::waitpid(pid, &exit_status, WNOHANG);
    if (ended == pid) return absl::OkStatus();
    if (ended < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "waitpid");
    TESSERA_RETURN_IF_ERROR(CheckPatience(deadline, stop));
    ::poll(nullptr, 0, 1);
  }
}

int ExitCode(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// SIGPIPE is turned into an error of write for this thread only.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~NoBrokenPipe() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    const timespec now = {0, 0};
    while (sigtimedwait(&pipe, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t before_;
};

}  // namespace

absl::StatusOr<pid_t> StartLogged(const ProcessRequest& request, const std::string& log_file) {
  Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Descriptor log(::open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (log.get() < 0) return absl::ErrnoToStatus(errno, absl::StrCat("opening log '", log_file, "'"));
  return Spawn(request, null.get(), log.get(), log.get());
}

absl::StatusOr<ProcessOutput> RunToEnd(const ProcessRequest& request, const std::string& input,
                                       absl::Duration timeout, const std::stop_token& stop) {
  const absl::Time deadline = absl::Now() + timeout;
  TESSERA_ASSIGN_OR_RETURN(Pipe in, MakePipe());
  TESSERA_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  TESSERA_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  NoBrokenPipe no_broken_pipe;
  TESSERA_ASSIGN_OR_RETURN(const pid_t pid, Spawn(request, in.read.get(), out.write.get(), err.write.get()));
  in.read.Close();
  out.write.Close();
  err.write.Close();
  ProcessOutput output;
  absl::Status status =
      Converse(std::move(in.write), std::move(out.read), std::move(err.read), input, deadline, stop, output);
  int exit_status = 0;
  if (status.ok()) status = AwaitExit(pid, deadline, stop, exit_status);
  if (!status.ok()) {
    ::kill(-pid, SIGKILL);
    while (::waitpid(pid, &exit_status, 0) < 0 && errno == EINTR) {
    }
  }
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(
        absl::StrCat("'", request.arguments[0], "' did not end within ", absl::FormatDuration(timeout)));
  }
  TESSERA_RETURN_IF_ERROR(status);
  output.exit_code = ExitCode(exit_status);
  return output;
}

}  // namespace tessera::scheduler

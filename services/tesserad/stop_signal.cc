#include "services/tesserad/stop_signal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"

namespace tessera::services {
namespace {

int g_pipe[2];
volatile sig_atomic_t g_signals = 0;

void OnSignal(int number) {
  g_signals = g_signals + 1;
  if (g_signals > 1) _exit(128 + number);
  const char byte = 1;
  [[maybe_unused]] const ssize_t written = ::write(g_pipe[1], &byte, 1);
}

void OnBrokenPipe(int) {}  // the write's error says it

}  // namespace

StopSignal::StopSignal() {
  TESSERA_CHECK(::pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) == 0);
  struct sigaction action = {};
  action.sa_flags = SA_RESTART;
  action.sa_handler = OnSignal;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) ::sigaction(number, &action, nullptr);
  action.sa_handler = OnBrokenPipe;
  ::sigaction(SIGPIPE, &action, nullptr);
}

bool StopSignal::Wait(absl::Duration patience) {
  pollfd waiting = {.fd = g_pipe[0], .events = POLLIN, .revents = 0};
  const int milliseconds =
      patience == absl::InfiniteDuration()
          ? -1
          : static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(patience), 0, 1 << 30));
  ::poll(&waiting, 1, milliseconds);
  return g_signals > 0;
}

}  // namespace tessera::services

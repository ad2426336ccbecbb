#include "services/cli/interrupts.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/check.h"

namespace tessera::cli {
namespace {

std::atomic<Interrupts*> g_signal_target = nullptr;

void OnSignal(int) {
  const int saved = errno;
  if (Interrupts* target = g_signal_target.load(std::memory_order_acquire)) target->Interrupt();
  errno = saved;
}

}  // namespace

Interrupts::Interrupts() : event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TESSERA_CHECK(event_fd_ >= 0);
}

Interrupts::~Interrupts() {
  Interrupts* self = this;
  g_signal_target.compare_exchange_strong(self, nullptr);
  close(event_fd_);
}

void Interrupts::HandleSignals() {
  g_signal_target.store(this, std::memory_order_release);
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void Interrupts::Interrupt() {
  count_.fetch_add(1, std::memory_order_acq_rel);
  Notify();
}

void Interrupts::Notify() {
  const uint64_t one = 1;
  // Only fails when the counter is full, and then Wait returns anyway.
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
}

bool Interrupts::Wait(absl::Duration timeout) {
  pollfd waiting = {.fd = event_fd_, .events = POLLIN, .revents = 0};
  const int64_t milliseconds = absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)));
  const int ready = poll(&waiting, 1, static_cast<int>(std::clamp<int64_t>(milliseconds, 0, 1 << 30)));
  uint64_t drained = 0;
  [[maybe_unused]] const ssize_t got = read(event_fd_, &drained, sizeof(drained));
  return ready != 0;
}

}  // namespace tessera::cli

#include "worker/control/termination.h"

#include <atomic>
#include <csignal>

namespace tessera::worker {
namespace {

std::atomic<TrainerSignals*> asked{nullptr};
std::atomic<int> terminations{0};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

void OnTerminate(int number) {
  if (terminations.fetch_add(1) > 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
    return;
  }
  TrainerSignals* signals = asked.load();
  signals->stop = true;
}

}  // namespace

void InstallTerminationHandler(TrainerSignals* signals) {
  asked = signals;
  std::signal(SIGTERM, OnTerminate);
}

}  // namespace tessera::worker

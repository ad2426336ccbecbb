// Ctrl-C counted, and a way to wait that it ends. Notify and Interrupt are
// async-signal-safe and may be called from any thread; Wait is for one thread.
#pragma once

#include <atomic>

#include "absl/time/time.h"

namespace tessera::cli {

class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // SIGINT and SIGTERM of this process count from now on. For one instance, which
  // outlives the handlers' last signal.
  void HandleSignals();

  void Interrupt();  // as one Ctrl-C
  void Notify();     // ends the current or the next Wait
  int count() const { return count_.load(std::memory_order_acquire); }

  // Until Interrupt, Notify or `timeout`. Whether it was woken.
  bool Wait(absl::Duration timeout);

 private:
  int event_fd_;
  std::atomic<int> count_ = 0;
};

}  // namespace tessera::cli

// How long this thread has worked, whatever else the machine does.
#pragma once

#include <time.h>

namespace tessera::worker {

// Adds the CPU time of the thread that makes it, from then to its end, to `*sum`, s.
class Stopwatch {
 public:
  explicit Stopwatch(double* sum) : sum_(sum), start_(Now()) {}
  ~Stopwatch() { *sum_ += Now() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  static double Now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }

  double* sum_;
  double start_;
};

}  // namespace tessera::worker

// Whether gradient dropping pays: predicted time of a step and memory decide.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::plan {

struct DroppingQuestion {
  double compute_seconds = 0;   // of a step, without waiting; 0 = unknown
  double bytes_per_second = 0;  // of the slowest link; 0 = unknown
  double rtt_seconds = 0;
  int64_t dense_traffic = 0;  // bytes sent per step by the worker that sends most
  int64_t dropped_traffic = 0;
  int64_t dense_memory = 0;  // bytes at the peak of the largest worker
  int64_t dropped_memory = 0;
  int64_t memory_limit = 0;  // 0 = unknown
};

struct DroppingDecision {
  bool pays = true;
  std::string reason;        // a sentence for people, with the numbers
  double dense_seconds = 0;  // predicted step; 0 = unknown
  double dropped_seconds = 0;
};

// A step is forward (a third of its computation), then backward and the reductions side by side. Dropping
// pays if the dense gradients do not fit and the kept ones do, or if the step is shorter by at least a
// twentieth: less is not worth the loss. What is not known speaks for what was asked for, dropping. Pure.
DroppingDecision DecideDropping(const DroppingQuestion& question);

}  // namespace tessera::plan

#include "scheduler/plan/dropping_decision.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::plan {
namespace {

constexpr double kForwardShare = 1.0 / 3;  // of a step's computation; backward costs twice as much
constexpr double kLeastGain = 0.05;        // of the dense step

double StepSeconds(const DroppingQuestion& q, int64_t traffic) {
  const double sync = q.rtt_seconds + static_cast<double>(traffic) / q.bytes_per_second;
  return kForwardShare * q.compute_seconds + std::max((1 - kForwardShare) * q.compute_seconds, sync);
}

std::string MiB(int64_t bytes) { return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

DroppingDecision DecideDropping(const DroppingQuestion& q) {
  DroppingDecision decision;
  if (q.bytes_per_second > 0) {
    decision.dense_seconds = StepSeconds(q, q.dense_traffic);
    decision.dropped_seconds = StepSeconds(q, q.dropped_traffic);
  }
  if (q.memory_limit > 0 && q.dense_memory > q.memory_limit && q.dropped_memory <= q.memory_limit) {
    decision.reason =
        absl::StrCat("dense gradients need ", MiB(q.dense_memory), " where ", MiB(q.memory_limit),
                     " may be used; with dropping it is ", MiB(q.dropped_memory));
    return decision;
  }
  if (q.bytes_per_second <= 0 || q.compute_seconds <= 0) {
    decision.reason = absl::StrCat(q.bytes_per_second <= 0 ? "the links are" : "the computation is",
                                   " not measured: dropping stays on as asked");
    return decision;
  }
  decision.pays = decision.dropped_seconds <= (1 - kLeastGain) * decision.dense_seconds;
  decision.reason = absl::StrFormat("a step is predicted to take %.4g s with dropping and %.4g s without%s",
                                    decision.dropped_seconds, decision.dense_seconds,
                                    decision.pays ? "" : ", and dense gradients fit");
  return decision;
}

}  // namespace tessera::plan

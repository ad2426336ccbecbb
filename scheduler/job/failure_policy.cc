#include "scheduler/job/failure_policy.h"

#include <signal.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::job {
namespace {

constexpr absl::Duration kLongestBackoff = absl::Minutes(10);

std::string SignalName(int signal) {
  switch (signal) {
    case SIGKILL:
      return "SIGKILL";
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGHUP:
      return "SIGHUP";
    case SIGSEGV:
      return "SIGSEGV";
    case SIGABRT:
      return "SIGABRT";
    case SIGBUS:
      return "SIGBUS";
    case SIGILL:
      return "SIGILL";
    case SIGFPE:
      return "SIGFPE";
    case SIGPIPE:
      return "SIGPIPE";
    default:
      return "";
  }
}

// Signals by which a program is ended from outside; the others are raised by its own errors.
bool FromOutside(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGPIPE;
}

std::string Detail(const ObservedWorker& worker) {
  return worker.error.empty() ? "" : absl::StrCat(": ", worker.error);
}

Failure ClassifyExit(const ObservedWorker& worker) {
  const std::string who = absl::StrCat("worker ", worker.rank);
  if (!worker.exit_known) {
    return {FailureClass::kInfrastructure, worker.rank, "WorkerLost",
            absl::StrCat(who, " ended unobserved; its exit status is unknown")};
  }
  if (worker.signal != 0) {
    std::string name = SignalName(worker.signal);
    if (!name.empty()) name = absl::StrCat(" (", name, ")");
    if (FromOutside(worker.signal)) {
      return {FailureClass::kInfrastructure, worker.rank, "WorkerKilled",
              absl::StrCat(who, " was killed by signal ", worker.signal, name)};
    }
    return {FailureClass::kApplication, worker.rank, "WorkerCrashed",
            absl::StrCat(who, " crashed with signal ", worker.signal, name)};
  }
  return {FailureClass::kApplication, worker.rank, "WorkerFailed",
          absl::StrCat(who, " exited with code ", worker.exit_code, " and no report")};
}

// A failure of the worker's own, nullopt if it has none (runs, completed, stopped, or lost a peer).
std::optional<Failure> OwnFailure(const ObservedWorker& worker) {
  if (!HasEnded(worker)) return std::nullopt;
  const std::string who = absl::StrCat("worker ", worker.rank);
  switch (EffectiveOutcome(worker)) {
    case Outcome::kNone:
      return ClassifyExit(worker);
    case Outcome::kOutOfMemory:
      return Failure{FailureClass::kOutOfMemory, worker.rank, "OutOfMemory",
                     absl::StrCat(who, " ran out of memory", Detail(worker))};
    case Outcome::kApplication:
      return Failure{FailureClass::kApplication, worker.rank, "WorkerFailed",
                     absl::StrCat(who, " failed", Detail(worker))};
    case Outcome::kInvalid:
      return Failure{FailureClass::kInvalid, worker.rank, "Invalid",
                     absl::StrCat(who, " can't run this job", Detail(worker))};
    case Outcome::kCompleted:
    case Outcome::kStopped:
    case Outcome::kPeerLost:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

absl::string_view FailureClassName(FailureClass failure_class) {
  switch (failure_class) {
    case FailureClass::kInfrastructure:
      return "infrastructure";
    case FailureClass::kOutOfMemory:
      return "out_of_memory";
    case FailureClass::kApplication:
      return "application";
    case FailureClass::kInvalid:
      return "invalid";
  }
  return "unknown";
}

Outcome EffectiveOutcome(const ObservedWorker& worker) {
  if (worker.outcome != Outcome::kNone) return worker.outcome;
  if (worker.running || !worker.exit_known || worker.signal != 0) return Outcome::kNone;
  switch (worker.exit_code) {
    case 0:
      return Outcome::kCompleted;
    case kExitUsage:
    case kExitInvalid:
      return Outcome::kInvalid;
    case kExitPeerLost:
      return Outcome::kPeerLost;
    case kExitOutOfMemory:
      return Outcome::kOutOfMemory;
    case kExitStopped:
      return Outcome::kStopped;
    default:
      return Outcome::kNone;
  }
}

bool HasEnded(const ObservedWorker& worker) { return !worker.running || worker.outcome != Outcome::kNone; }

std::optional<Failure> FindFailure(const Observed& observed, bool stop_requested, absl::Time now) {
  const ObservedWorker* culprit = nullptr;
  const ObservedWorker* witness = nullptr;
  const ObservedWorker* stopped = nullptr;
  auto earlier = [](const ObservedWorker& a, const ObservedWorker* b) {
    return b == nullptr || a.ended_at < b->ended_at;
  };
  for (const ObservedWorker& worker : observed.workers) {
    if (OwnFailure(worker).has_value() && earlier(worker, culprit)) culprit = &worker;
    const Outcome outcome = EffectiveOutcome(worker);
    if (outcome == Outcome::kPeerLost && earlier(worker, witness)) witness = &worker;
    if (outcome == Outcome::kStopped && earlier(worker, stopped)) stopped = &worker;
  }
  if (culprit != nullptr) return OwnFailure(*culprit);
  if (witness != nullptr && now >= witness->ended_at + kWitnessGrace) {
    return Failure{FailureClass::kInfrastructure, witness->rank, "PeerLost",
                   absl::StrCat("worker ", witness->rank, " lost contact to its peers", Detail(*witness))};
  }
  if (witness == nullptr && stopped != nullptr && !stop_requested) {
    return Failure{FailureClass::kInfrastructure, stopped->rank, "WorkerStopped",
                   absl::StrCat("worker ", stopped->rank, " stopped without being asked by the scheduler",
                                Detail(*stopped))};
  }
  return std::nullopt;
}

std::optional<absl::Time> RetryTime(const RetryPolicy& policy,
                                    const std::array<int, kFailureClasses>& failures,
                                    FailureClass failure_class, absl::Time now) {
  const auto index = static_cast<size_t>(failure_class);
  if (failure_class == FailureClass::kInvalid || failures[index] > policy.limit[index]) return std::nullopt;
  int restarts = 0;
  for (int count : failures) restarts += count;
  // 2^20 s is beyond the cap whatever the first wait is.
  const int doublings = std::clamp(restarts - 1, 0, 20);
  return now +
         std::min(policy.backoff * (int64_t{1} << doublings), std::max(policy.backoff, kLongestBackoff));
}

}  // namespace tessera::job

#include "tests/scheduler/launch/fake_launcher.h"

#include <signal.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera::scheduler {

std::string FakeLauncher::Record(const std::string& uid, int epoch) const {
  return absl::StrCat(uid, "#", epoch);
}

absl::StatusOr<std::string> FakeLauncher::Launch(const LaunchRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (!failures_.empty()) {
    absl::Status status = failures_.front();
    failures_.erase(failures_.begin());
    return status;
  }
  std::string record = Record(request.job_uid, request.epoch);
  if (groups_.contains(record)) return record;
  launches_.push_back(request);
  auto& group = groups_[record];
  for (int rank = 0; rank < request.world_size; ++rank) {
    ProcessState state;
    state.rank = rank;
    state.pid = 1000 * request.epoch + rank;
    state.node = "fake";
    state.running = true;
    group.push_back(state);
  }
  return record;
}

absl::StatusOr<std::vector<ProcessState>> FakeLauncher::Observe(const std::string& record) {
  absl::MutexLock lock(&mutex_);
  auto it = groups_.find(record);
  if (it == groups_.end()) return absl::NotFoundError(record);
  return it->second;
}

absl::Status FakeLauncher::Stop(const std::string& record, bool kill) {
  absl::MutexLock lock(&mutex_);
  if (!kill) ++terminations_;
  for (ProcessState& state : groups_[record]) {
    if (!state.running || (!kill && stubborn_)) continue;
    state.running = false;
    state.exit_known = !forget_;
    state.signal = kill ? SIGKILL : SIGTERM;
    state.exit_code = 128 + state.signal;
  }
  return absl::OkStatus();
}

absl::Status FakeLauncher::KillUnrecorded(const std::string& job_uid, int epoch) {
  return Stop(Record(job_uid, epoch), /*kill=*/true);
}

void FakeLauncher::Halt(const std::string& uid, int epoch, int rank) {
  absl::MutexLock lock(&mutex_);
  groups_.at(Record(uid, epoch)).at(static_cast<size_t>(rank)).halted = true;
}

void FakeLauncher::FailNextLaunch(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  failures_.push_back(status);
}

void FakeLauncher::Exit(const std::string& uid, int epoch, int rank, int code, int signal) {
  absl::MutexLock lock(&mutex_);
  ProcessState& state = groups_.at(Record(uid, epoch)).at(static_cast<size_t>(rank));
  state.running = false;
  state.exit_known = !forget_;
  state.signal = forget_ ? 0 : signal;
  state.exit_code = forget_ ? 0 : signal != 0 ? 128 + signal : code;
}

void FakeLauncher::ForgetExits() {
  absl::MutexLock lock(&mutex_);
  forget_ = true;
}

void FakeLauncher::IgnoreTerminate() {
  absl::MutexLock lock(&mutex_);
  stubborn_ = true;
}

std::vector<LaunchRequest> FakeLauncher::launches() const {
  absl::MutexLock lock(&mutex_);
  return launches_;
}

int FakeLauncher::terminations() const {
  absl::MutexLock lock(&mutex_);
  return terminations_;
}

int FakeLauncher::Running() const {
  absl::MutexLock lock(&mutex_);
  int running = 0;
  for (const auto& [record, group] : groups_) {
    for (const ProcessState& state : group) running += state.running ? 1 : 0;
  }
  return running;
}

int FakeLauncher::RunningEpochs(const std::string& uid) const {
  absl::MutexLock lock(&mutex_);
  int epochs = 0;
  for (const auto& [record, group] : groups_) {
    if (!absl::StartsWith(record, uid + "#")) continue;
    epochs +=
        std::any_of(group.begin(), group.end(), [](const ProcessState& s) { return s.running; }) ? 1 : 0;
  }
  return epochs;
}

}  // namespace tessera::scheduler

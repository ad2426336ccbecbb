// A launcher whose processes are entries of a table that the test moves.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/launch/launcher.h"

namespace tessera::scheduler {

// Outlives controllers, like processes do. Thread-safe.
class FakeLauncher : public Launcher {
 public:
  absl::StatusOr<std::string> Launch(const LaunchRequest& request) override;
  absl::StatusOr<std::vector<ProcessState>> Observe(const std::string& record) override;
  absl::Status Stop(const std::string& record, bool kill) override;
  absl::Status KillUnrecorded(const std::string& job_uid, int epoch) override;

  // What the next launch attempts answer instead of starting anything, in order.
  void FailNextLaunch(const absl::Status& status);
  void Exit(const std::string& uid, int epoch, int rank, int code, int signal = 0);
  // From now on the status of exits is unknown, as for processes of an earlier daemon.
  void ForgetExits();
  // Stopped by a signal; runs on paper.
  void Halt(const std::string& uid, int epoch, int rank);
  // Processes ignore SIGTERM.
  void IgnoreTerminate();

  std::vector<LaunchRequest> launches() const;
  int Running() const;
  int terminations() const;                         // calls of Stop that do not kill
  int RunningEpochs(const std::string& uid) const;  // epochs of a job with a live process

 private:
  std::string Record(const std::string& uid, int epoch) const;

  mutable absl::Mutex mutex_;
  std::vector<LaunchRequest> launches_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> failures_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<ProcessState>> groups_ ABSL_GUARDED_BY(mutex_);
  bool forget_ ABSL_GUARDED_BY(mutex_) = false;
  int terminations_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stubborn_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tessera::scheduler

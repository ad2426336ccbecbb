#include "worker/control/standstill_watch.h"

#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace tessera::worker {
namespace {

class Watch final : public StandstillWatch {
 public:
  Watch(ControlClient* client, absl::AnyInvocable<std::string()> waiting, absl::Duration patience)
      : client_(client), waiting_(std::move(waiting)), patience_(patience) {
    thread_ = std::thread([this] { Loop(); });
  }

  ~Watch() override {
    {
      absl::MutexLock lock(&mutex_);
      ending_ = true;
    }
    thread_.join();
  }

  void OnPhase(TrainerPhase, int64_t) override { NoteProgress(); }
  void OnStep(const StepReport&) override { NoteProgress(); }

 private:
  void NoteProgress() {
    absl::MutexLock lock(&mutex_);
    progress_at_ = absl::Now();
    told_.reset();
  }

  void Loop() {
    absl::MutexLock lock(&mutex_);
    while (!mutex_.AwaitWithTimeout(absl::Condition(&ending_), patience_ / 5)) {
      if (absl::Now() - progress_at_ < patience_) continue;
      const std::string now = waiting_();
      if (told_ == now) continue;
      told_ = now;
      v1::WorkerUp message;
      message.mutable_standstill()->set_waiting_in(now);
      client_->Send(message);
    }
  }

  ControlClient* client_;
  absl::AnyInvocable<std::string()> waiting_ ABSL_GUARDED_BY(mutex_);
  const absl::Duration patience_;
  std::thread thread_;
  absl::Mutex mutex_;
  absl::Time progress_at_ ABSL_GUARDED_BY(mutex_) = absl::Now();
  std::optional<std::string> told_ ABSL_GUARDED_BY(mutex_);  // since the last progress
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<StandstillWatch> StandstillWatch::Start(ControlClient* client,
                                                        absl::AnyInvocable<std::string()> waiting,
                                                        absl::Duration patience) {
  return std::make_unique<Watch>(client, std::move(waiting), patience);
}

}  // namespace tessera::worker

// Who watches which job. Updates are queued by anyone and delivered, in order, by
// the one thread that calls Deliver.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/controller/controller.h"

namespace tessera::scheduler {

class WatchRegistry {
 public:
  using Callback = Controller::WatchCallback;

  // `first`, unless null, is delivered before everything that is published after this call.
  int64_t Add(const JobKey& key, SharedUpdate first, Callback callback);
  // After it returns the callback is neither running nor called again (unless called from the callback).
  void Remove(int64_t watch);
  // To all watches of the job. `deleted` ends them.
  void Publish(const JobKey& key, v1::WatchTrainingJobResponse update);
  bool Watched(const JobKey& key);
  void Deliver();

 private:
  struct Watcher {
    JobKey key;
    Callback callback;
    bool running = false;
    bool removed = false;
  };
  struct Update {
    int64_t watch;
    SharedUpdate update;
  };

  absl::Mutex mutex_;
  int64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<int64_t, std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
  std::deque<Update> updates_ ABSL_GUARDED_BY(mutex_);
  std::thread::id deliverer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::scheduler

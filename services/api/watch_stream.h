// One watcher's queue of updates, filled on the controller's thread and emptied by a
// transport at its own pace. Every update holds the whole job, so a slow watcher loses
// the oldest ones and never blocks anybody.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/controller/controller.h"

namespace tessera::services {

// Counts open watches over all doors. Thread-safe.
class WatchSlots {
 public:
  explicit WatchSlots(int most) : free_(most) {}
  bool Take();
  void Give();

 private:
  absl::Mutex mutex_;
  int free_ ABSL_GUARDED_BY(mutex_);
};

class WatchStream {
 public:
  static constexpr size_t kMaxQueued = 16;

  // `ready`: see JobHandlers::Watch. It may be called once more while Close runs, so it owns what it touches.
  static absl::StatusOr<std::shared_ptr<WatchStream>> Open(scheduler::Controller* controller,
                                                           const scheduler::JobKey& key,
                                                           int64_t from_revision,
                                                           std::shared_ptr<WatchSlots> slots,
                                                           std::function<void()> ready);
  ~WatchStream();

  // The next update, null if there is none now. After an update with `deleted` nothing follows.
  scheduler::SharedUpdate Take();
  // No more updates; frees the slot. Not from inside `ready`. May be called twice.
  void Close();

 private:
  struct Queue {
    absl::Mutex mutex;
    std::deque<scheduler::SharedUpdate> updates ABSL_GUARDED_BY(mutex);
    std::function<void()> ready ABSL_GUARDED_BY(mutex);
    bool closed ABSL_GUARDED_BY(mutex) = false;
  };

  WatchStream(scheduler::Controller* controller, std::shared_ptr<WatchSlots> slots)
      : controller_(controller), slots_(std::move(slots)), queue_(std::make_shared<Queue>()) {}

  scheduler::Controller* const controller_;
  const std::shared_ptr<WatchSlots> slots_;
  const std::shared_ptr<Queue> queue_;  // shared with the controller's callback
  int64_t watch_ = -1;
};

}  // namespace tessera::services

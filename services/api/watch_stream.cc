#include "services/api/watch_stream.h"

#include <utility>

namespace tessera::services {

bool WatchSlots::Take() {
  absl::MutexLock lock(&mutex_);
  if (free_ <= 0) return false;
  --free_;
  return true;
}

void WatchSlots::Give() {
  absl::MutexLock lock(&mutex_);
  ++free_;
}

absl::StatusOr<std::shared_ptr<WatchStream>> WatchStream::Open(scheduler::Controller* controller,
                                                               const scheduler::JobKey& key,
                                                               int64_t from_revision,
                                                               std::shared_ptr<WatchSlots> slots,
                                                               std::function<void()> ready) {
  if (!slots->Take())
    return absl::ResourceExhaustedError("too many watches are open; close one or try again later");
  std::shared_ptr<WatchStream> stream(new WatchStream(controller, std::move(slots)));
  {
    absl::MutexLock lock(&stream->queue_->mutex);
    stream->queue_->ready = std::move(ready);
  }
  auto watch =
      controller->Watch(key, from_revision, [queue = stream->queue_](const scheduler::SharedUpdate& update) {
        std::function<void()> ready;
        {
          absl::MutexLock lock(&queue->mutex);
          if (queue->closed) return false;
          if (queue->updates.size() >= kMaxQueued) queue->updates.pop_front();
          queue->updates.push_back(update);
          ready = queue->ready;
        }
        if (ready) ready();  // outside the lock: it may take the update at once
        return true;
      });
  if (!watch.ok()) return watch.status();
  stream->watch_ = *watch;
  return stream;
}

WatchStream::~WatchStream() { Close(); }

scheduler::SharedUpdate WatchStream::Take() {
  absl::MutexLock lock(&queue_->mutex);
  if (queue_->updates.empty()) return nullptr;
  scheduler::SharedUpdate update = std::move(queue_->updates.front());
  queue_->updates.pop_front();
  return update;
}

void WatchStream::Close() {
  {
    absl::MutexLock lock(&queue_->mutex);
    if (queue_->closed) return;
    queue_->closed = true;
    queue_->ready = nullptr;
    queue_->updates.clear();
  }
  if (watch_ >= 0) controller_->Unwatch(watch_);
  slots_->Give();
}

}  // namespace tessera::services

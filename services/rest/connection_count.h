// How many connections there are; a stopping server waits for none. Thread-safe.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::services {

class ConnectionCount {
 public:
  void Add(int change) {
    absl::MutexLock lock(&mutex_);
    count_ += change;
  }
  int Get() const {
    absl::MutexLock lock(&mutex_);
    return count_;
  }
  // False when there are still some after `patience`.
  bool AwaitZero(absl::Duration patience) const {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(
                                       +[](const int* count) { return *count == 0; }, &count_),
                                   patience);
  }

 private:
  mutable absl::Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::services

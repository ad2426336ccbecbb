// The streams that are open, so that a draining server can end them.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tessera::services {

// Thread-safe.
class OpenStreams {
 public:
  // `end` is called at most once, by EndAll; it owns what it touches.
  int Add(std::function<void()> end) {
    absl::MutexLock lock(&mutex_);
    streams_[++last_] = std::move(end);
    return last_;
  }
  void Remove(int stream) {
    absl::MutexLock lock(&mutex_);
    streams_.erase(stream);
  }
  int size() const {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(streams_.size());
  }
  void EndAll() {
    std::map<int, std::function<void()>> streams;
    {
      absl::MutexLock lock(&mutex_);
      streams = streams_;
    }
    for (auto& [id, end] : streams) end();
  }

 private:
  mutable absl::Mutex mutex_;
  std::map<int, std::function<void()>> streams_ ABSL_GUARDED_BY(mutex_);
  int last_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::services

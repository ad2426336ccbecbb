// How often one client may call: a token bucket for each address. Thread-safe.
#pragma once

#include <list>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::services {

class RateLimit {
 public:
  static constexpr int kBurstSeconds = 4;      // a client that was silent may call for this long at once
  static constexpr size_t kMaxClients = 4096;  // the one that called longest ago is forgotten first

  // 0: none.
  explicit RateLimit(double per_second) : per_second_(per_second) {}
  // ResourceExhausted says when to call again.
  absl::Status Take(const std::string& client, absl::Time now);

 private:
  struct Bucket {
    std::string client;
    double tokens;
    absl::Time filled;
  };

  const double per_second_;
  absl::Mutex mutex_;
  std::list<Bucket> buckets_ ABSL_GUARDED_BY(mutex_);  // newest call first
  std::unordered_map<std::string, std::list<Bucket>::iterator> by_client_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::services

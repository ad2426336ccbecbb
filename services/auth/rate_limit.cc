#include "services/auth/rate_limit.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace tessera::services {

absl::Status RateLimit::Take(const std::string& client, absl::Time now) {
  if (per_second_ <= 0) return absl::OkStatus();
  const double most = per_second_ * kBurstSeconds;
  absl::MutexLock lock(&mutex_);
  auto known = by_client_.find(client);
  if (known == by_client_.end()) {
    if (buckets_.size() >= kMaxClients) {
      by_client_.erase(buckets_.back().client);
      buckets_.pop_back();
    }
    buckets_.push_front({client, most, now});
    known = by_client_.emplace(client, buckets_.begin()).first;
  }
  buckets_.splice(buckets_.begin(), buckets_, known->second);
  Bucket& bucket = buckets_.front();
  bucket.tokens = std::min(most, bucket.tokens + absl::ToDoubleSeconds(now - bucket.filled) * per_second_);
  bucket.filled = std::max(bucket.filled, now);
  if (bucket.tokens < 1) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", per_second_, " calls per second from one client; call again in a second"));
  }
  bucket.tokens -= 1;
  return absl::OkStatus();
}

}  // namespace tessera::services

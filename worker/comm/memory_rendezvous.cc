#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker/comm/rendezvous_client.h"

namespace tessera::worker {

absl::Status MemoryRendezvous::Set(const std::string& key, const std::string& value) {
  absl::MutexLock lock(&mutex_);
  values_[key] = value;
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryRendezvous::Get(const std::string& key, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return values_.count(key) > 0; };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&there), timeout)) {
    return absl::DeadlineExceededError(absl::StrCat("rendezvous key '", key, "' did not come"));
  }
  return values_[key];
}

absl::StatusOr<int64_t> MemoryRendezvous::Add(const std::string& key, int64_t amount) {
  absl::MutexLock lock(&mutex_);
  int64_t value = 0;
  if (auto it = values_.find(key); it != values_.end() && !absl::SimpleAtoi(it->second, &value)) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous key '", key, "' is no number"));
  }
  value += amount;
  values_[key] = absl::StrCat(value);
  return value;
}

absl::StatusOr<bool> MemoryRendezvous::Check(const std::vector<std::string>& keys) {
  absl::MutexLock lock(&mutex_);
  for (const auto& key : keys) {
    if (!values_.count(key)) return false;
  }
  return true;
}

absl::StatusOr<bool> MemoryRendezvous::Delete(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  return values_.erase(key) > 0;
}

absl::StatusOr<std::string> MemoryRendezvous::CompareSet(const std::string& key, const std::string& expected,
                                                         const std::string& desired) {
  absl::MutexLock lock(&mutex_);
  auto it = values_.find(key);
  if (it == values_.end()) {
    if (!expected.empty()) return expected;
    values_[key] = desired;
    return desired;
  }
  if (it->second == expected) it->second = desired;
  return it->second;
}

absl::StatusOr<int64_t> MemoryRendezvous::Count() {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(values_.size());
}

}  // namespace tessera::worker

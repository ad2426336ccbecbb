// The key-value store by which ranks find each other. The scheduler holds it, so
// no rank is a single point of failure; torch-free, so that the control channel
// can implement it. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::worker {

class RendezvousClient {
 public:
  virtual ~RendezvousClient() = default;
  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // Waits for the key; DeadlineExceeded names it.
  virtual absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) = 0;
  virtual absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) = 0;  // new value
  virtual absl::StatusOr<bool> Check(const std::vector<std::string>& keys) = 0;     // all there
  virtual absl::StatusOr<bool> Delete(const std::string& key) = 0;                  // was there
  // Sets if the value is `expected` (or missing and `expected` is empty). Returns the value now there.
  virtual absl::StatusOr<std::string> CompareSet(const std::string& key, const std::string& expected,
                                                 const std::string& desired) = 0;
  virtual absl::StatusOr<int64_t> Count() = 0;
};

// For ranks that are threads of one process.
class MemoryRendezvous final : public RendezvousClient {
 public:
  absl::Status Set(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override;
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) override;
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override;
  absl::StatusOr<bool> Delete(const std::string& key) override;
  absl::StatusOr<std::string> CompareSet(const std::string& key, const std::string& expected,
                                         const std::string& desired) override;
  absl::StatusOr<int64_t> Count() override;

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::worker

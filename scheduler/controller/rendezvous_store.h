// The key-value store by which the ranks of a worker group find each other,
// one space per (job uid, epoch).
#pragma once

#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::scheduler {

// Thread-safe. Lost with the process: groups need it only while they meet.
class RendezvousStore {
 public:
  static constexpr size_t kMaxKeys = 65536;       // of a space
  static constexpr size_t kMaxBytes = 64u << 20;  // of a space, keys and values

  // Makes the space of an epoch; those of the job's older epochs are dropped.
  void Open(const std::string& job_uid, int epoch);
  // All spaces of a job. Waiting GETs end with Aborted.
  void Drop(const std::string& job_uid);
  // Waiting GETs of all spaces end with Unavailable, later ones at once.
  void Close();

  // GET waits for all its keys until `deadline`: DeadlineExceeded names one that did not come. ADD keeps
  // decimal text, so that GET reads what ADD made; COMPARE_SET answers the value that is there
  // afterwards (the expected one if there is none and one was expected). Aborted: no such
  // space (an epoch that is over). InvalidArgument: a missing key, or ADD to something that is no number.
  absl::StatusOr<v1::StoreResponse> Apply(const v1::StoreRequest& request, absl::Time deadline);

 private:
  using SpaceId = std::pair<std::string, int>;
  struct Space {
    std::map<std::string, std::string> values;
    size_t bytes = 0;
  };

  Space* Find(const SpaceId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static absl::Status Put(Space& space, const std::string& key, const std::string& value);
  absl::StatusOr<v1::StoreResponse> Get(const SpaceId& id, const v1::StoreRequest& request,
                                        absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<SpaceId, Space> spaces_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::scheduler

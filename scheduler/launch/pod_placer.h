// Opens the gates of worker pods that wait to be placed, see pod_placement.h.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "scheduler/kube/api_client.h"
#include "scheduler/kube/mirror.h"

namespace tessera::scheduler {

// Thread-safe; works on a thread of its own.
class PodPlacer {
 public:
  // `client` outlives it. What the API server does not take is tried again after `retry`.
  PodPlacer(ApiClient* client, std::string ns, absl::Duration retry = absl::Seconds(1));
  ~PodPlacer();

  // These are the pods now. Does not block.
  void Look(std::shared_ptr<const Mirror::Objects> pods);

 private:
  void Run();
  bool Place(const Mirror::Objects& pods);  // whether all that wait are placed

  ApiClient* const client_;
  const std::string ns_;
  const absl::Duration retry_;
  std::set<std::string> placed_;  // of the thread: uids, which the mirror may still show as waiting
  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const Mirror::Objects> pods_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tessera::scheduler

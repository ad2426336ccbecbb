// What worker pods print, as files where local workers have theirs: `tessera logs` reads both.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/kube/api_client.h"

namespace tessera::scheduler {

// Thread-safe. One thread for each pod that prints.
class PodLogs {
 public:
  // `client` outlives it.
  PodLogs(ApiClient* client, std::string ns) : client_(client), ns_(std::move(ns)) {}
  ~PodLogs();  // within a second

  // Copies the log of a pod whose container runs or has run, from its beginning, until its end. Does nothing
  // for a uid that was seen before. A copy of an earlier process is begun anew.
  void Follow(const std::string& pod, const std::string& uid, const std::string& file);

 private:
  struct Copy {
    std::atomic<bool> done = false;
    std::thread thread;
  };
  void Run(const std::string& pod, const std::string& file);

  ApiClient* const client_;
  const std::string ns_;
  std::atomic<bool> stop_ = false;
  absl::Mutex mutex_;
  std::map<std::string, std::unique_ptr<Copy>> copies_ ABSL_GUARDED_BY(mutex_);  // by the pod's uid
};

}  // namespace tessera::scheduler

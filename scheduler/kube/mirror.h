// A local copy of a collection of the API server, kept current by list and watch.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "nlohmann/json_fwd.hpp"
#include "scheduler/kube/api_client.h"

namespace tessera::scheduler {

// Thread-safe. `changed` is called by the mirror's own thread, without its lock, after each list and change.
class Mirror {
 public:
  Mirror(ApiClient* client, std::string path, std::function<void()> changed);
  ~Mirror();

  // By name. nullptr until the first list has been read; a mirror that is cut off shows what it saw last.
  using Objects = std::map<std::string, std::shared_ptr<const nlohmann::json>>;
  std::shared_ptr<const Objects> Now() const;

 private:
  void Run();
  absl::Status Follow();
  void Change(const nlohmann::json& event);

  ApiClient* const client_;
  const std::string path_;
  const std::function<void()> changed_;
  std::atomic<bool> stop_ = false;
  mutable absl::Mutex mutex_;
  std::shared_ptr<const Objects> objects_ ABSL_GUARDED_BY(mutex_);
  std::string version_;  // of the thread; "" = list
  std::thread thread_;
};

}  // namespace tessera::scheduler

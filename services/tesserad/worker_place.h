// Where workers run: on this machine, or on a Kubernetes cluster.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/kube/api_client.h"
#include "scheduler/launch/launcher.h"
#include "services/kubernetes/job_resources.h"
#include "services/kubernetes/token_review.h"
#include "services/tesserad/options.h"
#include "services/tesserad/state_directory.h"
#include "tessera/v1/node.pb.h"

namespace tessera::services {

struct WorkerPlace {
  std::unique_ptr<scheduler::ApiClient> kubernetes;  // null: this machine
  std::string kubernetes_namespace;
  std::unique_ptr<JobLinks> links;  // null: no custom resources
  std::unique_ptr<scheduler::ApiClient> review_client;
  std::unique_ptr<TokenReviewer> reviewer;  // null: no tokens but the service's own
  std::unique_ptr<scheduler::Launcher> launcher;
};

// GPUs of this machine that workers of this scheduler may have: what CUDA_VISIBLE_DEVICES leaves it, else all
// of `node`. Sees to it that numbers mean the same to the driver and to workers.
std::vector<std::string> GpusForJobs(const DaemonOptions& options, const v1::NodeProfile& node);

// gpus: see LocalLauncherOptions. FailedPrecondition says what is missing to reach the cluster.
absl::StatusOr<WorkerPlace> OpenWorkerPlace(const DaemonOptions& options, const StateDirectory& state,
                                            const std::string& node, std::vector<std::string> gpus);

// Thread-safe. Forwards to what is made after the store.
class StoreObserver {
 public:
  void Changed(const scheduler::JobKey& key) {
    absl::MutexLock lock(&mutex_);
    if (resources_ != nullptr) resources_->Changed(key);
  }
  void Set(JobResources* resources) {
    absl::MutexLock lock(&mutex_);
    resources_ = resources;
  }

 private:
  absl::Mutex mutex_;
  JobResources* resources_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace tessera::services

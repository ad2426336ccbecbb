// A group of workers as Kubernetes objects. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "scheduler/launch/launcher.h"

namespace tessera::scheduler {

// "pvc:CLAIM" or "hostPath:/DIRECTORY", mounted at `mount`.
struct KubernetesVolume {
  std::string source;
  std::string mount;
};

// How pods of workers with GPUs get them.
struct KubernetesGpus {
  std::string resource = "nvidia.com/gpu";  // as the device plug-in of the cluster names it
  std::string runtime_class;                // empty: the cluster's default
  std::string tolerations = "[]";           // JSON, as a pod has them
};

struct KubernetesOptions {
  std::string ns;
  std::string worker_image;  // pinned by digest where it can be
  std::string service_account = "default";
  std::string token_audience;  // of a projected token by which workers are known; empty: LaunchRequest's
  std::string ca_secret;       // whose ca.crt an https scheduler is known by; empty: none
  KubernetesVolume state;      // the daemon's own state directory, mounted in parts at the same paths
  std::vector<KubernetesVolume> data;  // read-only
  std::string priority_class;          // of worker pods; empty: the cluster's default
  std::string kueue_queue;             // Kueue's, of jobs that name none; empty: Kueue is not used
  int metrics_port = 0;        // at which workers serve /metrics to the cluster; 0: inside their pod alone
  bool place_workers = false;  // the nodes of a LaunchRequest are nodes of this cluster
  KubernetesGpus gpus;
};

inline constexpr char kManagedBy[] = "app.kubernetes.io/managed-by=tesserad";

// InvalidArgument names the option and what would be right. No host path is mounted unless an option
// names it: jobs can't.
absl::Status CheckKubernetesOptions(const KubernetesOptions& options);

// tessera-<16 digits of the uid>-<epoch>: the same for a repeated launch.
std::string KubernetesJobName(const std::string& job_uid, int epoch);

// An Indexed Job of batch/v1: rank = completion index, no pod is replaced (a lost worker ends the epoch, and
// the next epoch is another Job), gone a minute after its end, with what it holds of the volume.
// With the uid of the training job's custom resource, that owns the Job: deleting it leaves nothing.
// With Kueue it starts suspended, under the label of its queue: Kueue says when it may go. With
// place_workers its pods wait to be placed, see pod_placement.h.
nlohmann::json RenderWorkers(const LaunchRequest& request, const KubernetesOptions& options,
                             const std::string& owner_uid = "");

// Workers of one epoch reach each other; others reach none of them. Owned by the Job, and goes with it.
nlohmann::json RenderNetworkPolicy(const LaunchRequest& request, const KubernetesOptions& options,
                                   const std::string& owner_uid);

// Whether a pod has the name that pods of this worker get. Rank -1: of any of its group.
bool IsPodOfWorker(const std::string& pod, const std::string& job_uid, int epoch, int rank);

// The merge patch that makes a custom resource the owner of a Job.
nlohmann::json OwnedByTrainingJob(const std::string& job_name, const std::string& owner_uid);

// What a group that Kueue holds waits for; empty for one that is not held.
std::string HeldBecause(const nlohmann::json& job);

// What a pod says about its worker. `waits` is set while it can't start.
ProcessState StateOfPod(const nlohmann::json& pod, int rank);

}  // namespace tessera::scheduler

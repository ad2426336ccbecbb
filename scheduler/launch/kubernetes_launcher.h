// Workers as pods.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "scheduler/kube/api_client.h"
#include "scheduler/launch/kubernetes_objects.h"
#include "scheduler/launch/launcher.h"

namespace tessera::scheduler {

// One Indexed Job and one NetworkPolicy per epoch; see kubernetes_objects.h. Pods are watched: Observe asks
// nobody. A pod that is deleted is a lost worker, also where Kubernetes makes another one. Thread-safe;
// `client` outlives it. Launch fails with what the API server says; Unavailable while the first list of pods
// is not there.
// `owner_of` (may be empty) gives the uid of a training job's custom resource, "" for none.
using OwnerOf = std::function<std::string(const std::string& job_uid, const std::string& job_name)>;
absl::StatusOr<std::unique_ptr<Launcher>> MakeKubernetesLauncher(ApiClient* client,
                                                                 const KubernetesOptions& options,
                                                                 OwnerOf owner_of = nullptr);

}  // namespace tessera::scheduler

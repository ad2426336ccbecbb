#include "services/tesserad/worker_place.h"

#include <spdlog/spdlog.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "scheduler/launch/kubernetes_launcher.h"
#include "scheduler/launch/local_launcher.h"
#include "services/api/nvml.h"

namespace tessera::services {

std::vector<std::string> GpusForJobs(const DaemonOptions& options, const v1::NodeProfile& node) {
  if (options.kubernetes) return {};
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> gpus = VisibleGpus(node, visible);
  if (!gpus.empty()) spdlog::info("event=gpus_for_jobs gpus={}", absl::StrJoin(gpus, ","));
  return gpus;
}

absl::StatusOr<WorkerPlace> OpenWorkerPlace(const DaemonOptions& options, const StateDirectory& state,
                                            const std::string& node, std::vector<std::string> gpus) {
  WorkerPlace place;
  if (!options.kubernetes) {
    place.launcher = scheduler::MakeLocalLauncher(
        {.worker_program = options.worker_program, .arguments = {}, .node = node, .gpus = std::move(gpus)});
    return place;
  }
  TESSERA_ASSIGN_OR_RETURN(const scheduler::KubeConfig config, scheduler::LoadKubeConfig());
  TESSERA_ASSIGN_OR_RETURN(place.kubernetes, scheduler::MakeApiClient(config));
  place.kubernetes_namespace = config.ns;
  scheduler::KubernetesOptions workers = options.workers;
  workers.ns = config.ns;
  scheduler::OwnerOf owner;
  if (options.training_jobs) {
    TESSERA_ASSIGN_OR_RETURN(place.links, JobLinks::Open(state.File("kubernetes.json")));
    owner = [links = place.links.get()](const std::string& job_uid, const std::string& name) {
      return links->OwnerOf(job_uid, name);
    };
  }
  if (options.token_review) {
    TESSERA_ASSIGN_OR_RETURN(place.review_client, scheduler::MakeApiClient(config));
    place.reviewer =
        std::make_unique<TokenReviewer>(place.review_client.get(), config.ns, options.token_audience);
    workers.token_audience = options.token_audience;
  }
  TESSERA_ASSIGN_OR_RETURN(place.launcher,
                           scheduler::MakeKubernetesLauncher(place.kubernetes.get(), workers, owner));
  return place;
}

}  // namespace tessera::services

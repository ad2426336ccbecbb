#include "scheduler/launch/kubernetes_launcher.h"

#include <spdlog/spdlog.h>

#include <map>
#include <nlohmann/json.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "scheduler/kube/mirror.h"
#include "scheduler/launch/pod_logs.h"
#include "scheduler/launch/pod_placer.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kMirrorLag = absl::Seconds(15);
constexpr char kRankLabel[] = "batch.kubernetes.io/job-completion-index";
constexpr char kJobLabel[] = "batch.kubernetes.io/job-name";

struct Group {
  std::string name;  // of the Job
  std::string uid;   // of the Job
  int world_size = 0;
  std::string logs;  // "<run directory>/logs/epoch-<e>-rank-"
};

absl::StatusOr<Group> Decode(const std::string& record) {
  const Json json = Json::parse(record, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("kubernetesJob")) {
    return absl::DataLossError("the record of the workers is not of a Kubernetes Job");
  }
  return Group{json.value("kubernetesJob", ""), json.value("uid", ""), json.value("workers", 0),
               json.value("logs", "")};
}

std::string Encode(const Group& group) {
  return Json{
      {"kubernetesJob", group.name}, {"uid", group.uid}, {"workers", group.world_size}, {"logs", group.logs}}
      .dump();
}

// Its container runs, or has run: there is a log.
bool HasPrinted(const Json& pod) {
  const Json containers = pod.value("/status/containerStatuses"_json_pointer, Json::array());
  if (containers.empty()) return false;
  const Json state = containers[0].value("state", Json::object());
  return state.contains("running") || state.contains("terminated");
}

class KubernetesLauncher final : public Launcher {
 public:
  KubernetesLauncher(ApiClient* client, const KubernetesOptions& options, OwnerOf owner_of)
      : client_(client),
        options_(options),
        owner_of_(std::move(owner_of)),
        logs_(client, options.ns),
        placer_(client, options.ns),
        pods_(client, Collection("/api/v1", "pods"), [this] { placer_.Look(pods_.Now()); }),
        jobs_(client, Collection("/apis/batch/v1", "jobs"), nullptr) {}

  absl::StatusOr<std::string> Launch(const LaunchRequest& request) override {
    const std::string path = absl::StrCat("/apis/batch/v1/namespaces/", options_.ns, "/jobs");
    const std::string owner = OwnerNow(request);
    absl::StatusOr<Json> job = client_->Create(path, RenderWorkers(request, options_, owner));
    if (absl::IsAlreadyExists(job.status())) {  // of a launch that was interrupted
      job = client_->Get(path + "/" + KubernetesJobName(request.job_uid, request.epoch));
    }
    if (!job.ok()) return job.status();
    // The custom resource of a job that came by another door may be made at this moment: who comes later, it
    // or the Job, sees the other.
    if (const std::string now = OwnerNow(request); owner.empty() && !now.empty()) {
      const std::string name = (*job)["metadata"].value("name", "");
      job = client_->MergePatch(absl::StrCat(path, "/", name), OwnedByTrainingJob(request.job_name, now));
      if (!job.ok()) return job.status();
    }
    const Group group{(*job)["metadata"].value("name", ""), (*job)["metadata"].value("uid", ""),
                      request.world_size,
                      absl::StrCat(request.run_directory, "/logs/epoch-", request.epoch, "-rank-")};
    const Json policy = RenderNetworkPolicy(request, options_, group.uid);
    absl::Status isolated = client_
                                ->Apply(absl::StrCat("/apis/networking.k8s.io/v1/namespaces/", options_.ns,
                                                     "/networkpolicies/", group.name),
                                        policy)
                                .status();
    if (!isolated.ok()) {
      End(group).IgnoreError();
      return isolated;
    }
    absl::MutexLock lock(&mutex_);
    known_[group.uid].launched_at = absl::Now();
    return Encode(group);
  }

  absl::StatusOr<std::vector<ProcessState>> Observe(const std::string& record) override {
    TESSERA_ASSIGN_OR_RETURN(const Group group, Decode(record));
    const auto pods = pods_.Now();
    const auto jobs = jobs_.Now();
    if (pods == nullptr || jobs == nullptr) return absl::UnavailableError("the pods were not listed yet");
    absl::MutexLock lock(&mutex_);
    Known& known = known_[group.uid];
    const auto job = jobs->find(group.name);
    const bool there = (job != jobs->end() && (*job->second)["metadata"].value("uid", "") == group.uid) ||
                       absl::Now() - known.launched_at < kMirrorLag;
    if (there && job != jobs->end()) known.launched_at = absl::InfinitePast();
    const std::string held = there && job != jobs->end() ? HeldBecause(*job->second) : "";
    std::vector<ProcessState> states(static_cast<size_t>(group.world_size));
    for (int rank = 0; rank < group.world_size; ++rank) {
      states[rank].rank = rank;
      states[rank].running = there && !known.pods.contains(rank);
      states[rank].waits = held;
    }
    for (const auto& [name, pod] : *pods) {
      const Json& metadata = (*pod)["metadata"];
      const Json labels = metadata.value("labels", Json::object());
      int rank = -1;
      if (labels.value(kJobLabel, "") != group.name ||
          !absl::SimpleAtoi(labels.value(kRankLabel, ""), &rank) || rank < 0 || rank >= group.world_size) {
        continue;
      }
      const std::string uid = metadata.value("uid", "");
      if (known.pods.emplace(rank, uid).first->second != uid) continue;  // another one in place of a lost one
      states[rank] = StateOfPod(*pod, rank);
      if (HasPrinted(*pod)) logs_.Follow(name, uid, absl::StrCat(group.logs, rank, ".log"));
    }
    return states;
  }

  absl::Status Stop(const std::string& record, bool kill) override {
    TESSERA_ASSIGN_OR_RETURN(const Group group, Decode(record));
    if (!kill) return End(group);  // its pods get SIGTERM and their grace
    TESSERA_RETURN_IF_ERROR(End(group));
    const auto pods = pods_.Now();
    if (pods == nullptr) return absl::OkStatus();
    for (const auto& [name, pod] : *pods) {
      const Json labels = (*pod)["metadata"].value("labels", Json::object());
      if (labels.value(kJobLabel, "") != group.name) continue;
      const absl::Status status =
          client_->Delete(absl::StrCat("/api/v1/namespaces/", options_.ns, "/pods/", name),
                          (*pod)["metadata"].value("uid", ""), ApiClient::Grace::kNone);
      if (!status.ok() && !absl::IsNotFound(status)) return status;
    }
    return absl::OkStatus();
  }

  absl::Status KillUnrecorded(const std::string& job_uid, int epoch) override {
    return End({KubernetesJobName(job_uid, epoch), "", 0, ""});
  }

 private:
  struct Known {
    absl::Time launched_at = absl::InfinitePast();  // until it is seen in the mirror
    std::map<int, std::string> pods;                // the uid of each rank's first pod
  };

  std::string Collection(const std::string& group, const std::string& plural) const {
    return absl::StrCat(group, "/namespaces/", options_.ns, "/", plural,
                        "?labelSelector=", QueryEscape(kManagedBy));
  }

  std::string OwnerNow(const LaunchRequest& request) const {
    return owner_of_ ? owner_of_(request.job_uid, request.job_name) : "";
  }

  absl::Status End(const Group& group) {
    const absl::Status status =
        client_->Delete(absl::StrCat("/apis/batch/v1/namespaces/", options_.ns, "/jobs/", group.name),
                        group.uid, ApiClient::Grace::kItsOwn);
    return absl::IsNotFound(status) ? absl::OkStatus() : status;
  }

  ApiClient* const client_;
  const KubernetesOptions options_;
  const OwnerOf owner_of_;
  absl::Mutex mutex_;
  std::map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);  // by the Job's uid
  PodLogs logs_;
  PodPlacer placer_;
  Mirror pods_;
  Mirror jobs_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Launcher>> MakeKubernetesLauncher(ApiClient* client,
                                                                 const KubernetesOptions& options,
                                                                 OwnerOf owner_of) {
  TESSERA_RETURN_IF_ERROR(CheckKubernetesOptions(options));
  return std::make_unique<KubernetesLauncher>(client, options, std::move(owner_of));
}

}  // namespace tessera::scheduler

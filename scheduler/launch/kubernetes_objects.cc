#include "scheduler/launch/kubernetes_objects.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "scheduler/launch/pod_placement.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;

constexpr int kUser = 65532;
constexpr char kMetricsPort[] = "metrics";
constexpr char kServiceFolder[] = "/var/run/tessera";  // what a worker needs to speak with tesserad
constexpr int kGroupReads = 0440;
constexpr int kTokenSeconds = 3600;  // the kubelet renews it before, the worker reads it at each connection
constexpr int kKeepSeconds = 60;
constexpr char kQueueLabel[] = "kueue.x-k8s.io/queue-name";
constexpr int kExitUsage = 2;  // of the worker; those of scheduler/job/failure_policy.h
constexpr int kExitInvalid = 3;
constexpr int kExitOutOfMemory = 12;
constexpr int kSignalBase = 128;
constexpr int64_t kBaseBytes = int64_t{512} << 20;  // of a process beside what the plan counts, at least

Json Labels(const LaunchRequest& request) {
  return {{"app.kubernetes.io/managed-by", "tesserad"},
          {"app.kubernetes.io/component", "worker"},
          {"tessera.dev/job", request.job_name},
          {"tessera.dev/job-uid", request.job_uid},
          {"tessera.dev/epoch", absl::StrCat(request.epoch)}};
}

Json Source(const KubernetesVolume& volume, const std::string& name) {
  absl::string_view rest = volume.source;
  if (absl::ConsumePrefix(&rest, "pvc:")) {
    return {{"name", name}, {"persistentVolumeClaim", {{"claimName", std::string(rest)}}}};
  }
  absl::ConsumePrefix(&rest, "hostPath:");
  return {{"name", name}, {"hostPath", {{"path", std::string(rest)}, {"type", "Directory"}}}};
}

Json Variable(const std::string& name, const std::string& value) {
  // "$(X)" in a value would be replaced.
  return {{"name", name}, {"value", absl::StrReplaceAll(value, {{"$", "$$"}})}};
}

Json FromField(const char* name, const char* path) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
}

Json Environment(const LaunchRequest& request, const KubernetesOptions& options) {
  std::map<std::string, std::string> plain = {{"OMP_NUM_THREADS", absl::StrCat(request.cpu_threads)},
                                              {"MKL_NUM_THREADS", absl::StrCat(request.cpu_threads)},
                                              {"OMP_WAIT_POLICY", "passive"}};
  for (const auto& [name, value] : request.env) plain[name] = value;
  plain["TESSERA_SCHEDULER"] = request.scheduler;
  plain["TESSERA_JOB"] = request.job_uid;
  plain["TESSERA_EPOCH"] = absl::StrCat(request.epoch);
  plain["TESSERA_TOKEN_FILE"] =
      options.token_audience.empty() ? request.token_file : absl::StrCat(kServiceFolder, "/token");
  if (!options.ca_secret.empty()) plain["TESSERA_CA_FILE"] = absl::StrCat(kServiceFolder, "/ca.crt");
  Json list = Json::array();
  for (const auto& [name, value] : plain) list.push_back(Variable(name, value));
  list.push_back(
      FromField("TESSERA_RANK", "metadata.annotations['batch.kubernetes.io/job-completion-index']"));
  list.push_back(FromField("TESSERA_BIND_ADDRESS", "status.podIP"));
  if (options.metrics_port > 0) {  // after the variable that it names
    list.push_back({{"name", "TESSERA_METRICS_ADDRESS"},
                    {"value", absl::StrCat("$(TESSERA_BIND_ADDRESS):", options.metrics_port)}});
  }
  return list;
}

Json Container(const LaunchRequest& request, const KubernetesOptions& options, Json mounts) {
  Json requests = {{"cpu", absl::StrCat(std::max(1, request.cpu_threads) * 1000 / 2, "m")}};
  Json limits = Json::object();
  if (request.memory_bytes > 0) {
    // All pods of a Job ask for the same: those that are bound to their nodes for what the smallest node
    // holds.
    const bool bound = options.place_workers && !FitAnywhere(request);
    const int64_t process = std::max(kBaseBytes, request.process_bytes);
    requests["memory"] = absl::StrCat(process + (bound ? request.least_memory_bytes : request.memory_bytes));
    limits["memory"] = absl::StrCat(process + request.memory_bytes);
  }
  if (request.gpus > 0) {
    // Of such resources the request is the limit.
    limits[options.gpus.resource] = request.gpus;
  }
  Json container = {{"name", "worker"},
                    {"image", options.worker_image},
                    {"command", {"tessera-worker"}},
                    {"env", Environment(request, options)},
                    {"resources", {{"requests", requests}, {"limits", limits}}},
                    {"volumeMounts", std::move(mounts)},
                    {"securityContext",
                     {{"allowPrivilegeEscalation", false},
                      {"readOnlyRootFilesystem", true},
                      {"capabilities", {{"drop", {"ALL"}}}}}}};
  if (options.metrics_port > 0) {
    container["ports"] = Json::array({{{"name", kMetricsPort}, {"containerPort", options.metrics_port}}});
  }
  return container;
}

// `path` relative to `folder`; nullopt if it is not inside.
std::optional<std::string> Inside(const std::string& folder, const std::string& path) {
  if (path == folder) return "";
  if (!absl::StartsWith(path, folder + "/")) return std::nullopt;
  return path.substr(folder.size() + 1);
}

// Of the state directory a worker sees its job's own folder and what its job names, not other jobs and their
// tokens.
Json StateMounts(const LaunchRequest& request, const std::string& state) {
  Json mounts = Json::array();
  std::vector<std::string> mounted;
  const auto mount = [&](const std::string& path, bool read_only) {
    const auto below = Inside(state, path);
    if (!below.has_value()) return;
    for (const std::string& folder : mounted) {
      if (Inside(folder, path).has_value()) return;
    }
    mounted.push_back(path);
    Json entry = {{"name", "state"}, {"mountPath", path}};
    if (!below->empty()) entry["subPath"] = *below;
    if (read_only) entry["readOnly"] = true;
    mounts.push_back(std::move(entry));
  };
  mount(request.run_directory, false);
  for (const std::string& path : request.writes) mount(path, false);
  for (const std::string& path : request.reads) mount(path, true);
  return mounts;
}

// The worker's own token, bound to its pod and good for tesserad alone, and the authority of tesserad's
// certificate. Null: neither.
Json ServiceVolume(const KubernetesOptions& options) {
  Json sources = Json::array();
  if (!options.token_audience.empty()) {
    sources.push_back(
        {{"serviceAccountToken",
          {{"path", "token"}, {"audience", options.token_audience}, {"expirationSeconds", kTokenSeconds}}}});
  }
  if (!options.ca_secret.empty()) {
    const Json authority = {{"key", "ca.crt"}, {"path", "ca.crt"}};
    sources.push_back({{"secret", {{"name", options.ca_secret}, {"items", Json::array({authority})}}}});
  }
  if (sources.empty()) return nullptr;
  return {{"name", "service"},
          {"projected", {{"defaultMode", kGroupReads}, {"sources", std::move(sources)}}}};
}

Json PodSpec(const LaunchRequest& request, const KubernetesOptions& options) {
  Json volumes = {{{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}}}},
                  {{"name", "tmp"}, {"emptyDir", Json::object()}},
                  Source(options.state, "state")};
  Json mounts = {{{"name", "shm"}, {"mountPath", "/dev/shm"}}, {{"name", "tmp"}, {"mountPath", "/tmp"}}};
  if (Json service = ServiceVolume(options); !service.is_null()) {
    volumes.push_back(std::move(service));
    mounts.push_back({{"name", "service"}, {"mountPath", kServiceFolder}, {"readOnly", true}});
  }
  for (Json& mount : StateMounts(request, options.state.mount)) mounts.push_back(std::move(mount));
  for (size_t i = 0; i < options.data.size(); ++i) {
    const std::string name = absl::StrCat("data-", i);
    volumes.push_back(Source(options.data[i], name));
    mounts.push_back({{"name", name}, {"mountPath", options.data[i].mount}, {"readOnly", true}});
  }
  Json spec = {{"restartPolicy", "Never"},
               {"serviceAccountName", options.service_account},
               {"automountServiceAccountToken", false},
               {"enableServiceLinks", false},
               {"terminationGracePeriodSeconds", 60},
               {"securityContext",
                {{"runAsNonRoot", true},
                 {"runAsUser", kUser},
                 {"runAsGroup", kUser},
                 {"fsGroup", kUser},
                 {"fsGroupChangePolicy", "OnRootMismatch"},
                 {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
               {"containers", {Container(request, options, std::move(mounts))}},
               {"volumes", std::move(volumes)}};
  if (!options.priority_class.empty()) spec["priorityClassName"] = options.priority_class;
  if (request.gpus > 0) {
    if (!options.gpus.runtime_class.empty()) spec["runtimeClassName"] = options.gpus.runtime_class;
    Json tolerations = Json::parse(options.gpus.tolerations);
    if (!tolerations.empty()) spec["tolerations"] = std::move(tolerations);
  }
  return spec;
}

Json Owner(const char* api_version, const char* kind, const std::string& name, const std::string& uid) {
  return {{"apiVersion", api_version}, {"kind", kind}, {"name", name}, {"uid", uid}, {"controller", true}};
}

// The condition of `type`, or an empty object.
Json Condition(const Json& status, const char* type) {
  for (const Json& condition : status.value("conditions", Json::array())) {
    if (condition.value("type", "") == type) return condition;
  }
  return Json::object();
}

absl::Status CheckVolume(const char* option, const KubernetesVolume& volume) {
  absl::string_view rest = volume.source;
  const bool claim = absl::ConsumePrefix(&rest, "pvc:") && !rest.empty();
  const bool path = absl::StartsWith(volume.source, "hostPath:/");
  if (!claim && !path) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, " '", volume.source, "' must be pvc:CLAIM or hostPath:/DIRECTORY"));
  }
  if (!absl::StartsWith(volume.mount, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, " ", volume.source, ": '", volume.mount, "' must be an absolute path"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckKubernetesOptions(const KubernetesOptions& options) {
  if (options.worker_image.empty()) {
    return absl::InvalidArgumentError("--worker-image is needed: the image that workers run");
  }
  if (absl::Status status = CheckVolume("--worker-volume", options.state); !status.ok()) return status;
  if (!Json::parse(options.gpus.tolerations, nullptr, /*allow_exceptions=*/false).is_array()) {
    return absl::InvalidArgumentError(absl::StrCat("--worker-gpu-tolerations '", options.gpus.tolerations,
                                                   "' must be a JSON list of tolerations"));
  }
  for (const KubernetesVolume& volume : options.data) {
    if (absl::Status status = CheckVolume("--data-volume", volume); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string KubernetesJobName(const std::string& job_uid, int epoch) {
  const std::string digits = absl::StrReplaceAll(job_uid, {{"-", ""}}).substr(0, 16);
  return absl::StrCat("tessera-", digits, "-", epoch);
}

Json RenderWorkers(const LaunchRequest& request, const KubernetesOptions& options,
                   const std::string& owner_uid) {
  const Json labels = Labels(request);
  const Json bad_job = {
      {"action", "FailJob"},
      {"onExitCodes",
       {{"containerName", "worker"}, {"operator", "In"}, {"values", {kExitUsage, kExitInvalid}}}}};
  Json metadata = {{"name", KubernetesJobName(request.job_uid, request.epoch)},
                   {"namespace", options.ns},
                   {"labels", labels}};
  if (!owner_uid.empty()) metadata.update(OwnedByTrainingJob(request.job_name, owner_uid)["metadata"]);
  Json pods = {{"metadata", {{"labels", labels}}}, {"spec", PodSpec(request, options)}};
  if (options.place_workers) AwaitPlacement(request, &pods);
  Json spec = {{"completionMode", "Indexed"},
               {"completions", request.world_size},
               {"parallelism", request.world_size},
               {"backoffLimitPerIndex", 0},
               {"podReplacementPolicy", "Failed"},
               {"podFailurePolicy", {{"rules", {bad_job}}}},
               {"ttlSecondsAfterFinished", kKeepSeconds},
               {"template", std::move(pods)}};
  if (!options.kueue_queue.empty()) {
    metadata["labels"][kQueueLabel] = request.queue.empty() ? options.kueue_queue : request.queue;
    spec["suspend"] = true;
  }
  return {{"apiVersion", "batch/v1"},
          {"kind", "Job"},
          {"metadata", std::move(metadata)},
          {"spec", std::move(spec)}};
}

Json RenderNetworkPolicy(const LaunchRequest& request, const KubernetesOptions& options,
                         const std::string& owner_uid) {
  const std::string name = KubernetesJobName(request.job_uid, request.epoch);
  const Json group = {
      {"matchLabels",
       {{"tessera.dev/job-uid", request.job_uid}, {"tessera.dev/epoch", absl::StrCat(request.epoch)}}}};
  const Json owner = Owner("batch/v1", "Job", name, owner_uid);
  Json ingress = Json::array({{{"from", Json::array({{{"podSelector", group}}})}}});
  if (options.metrics_port > 0) ingress.push_back({{"ports", Json::array({{{"port", kMetricsPort}}})}});
  return {{"apiVersion", "networking.k8s.io/v1"},
          {"kind", "NetworkPolicy"},
          {"metadata",
           {{"name", name},
            {"namespace", options.ns},
            {"labels", Labels(request)},
            {"ownerReferences", Json::array({owner})}}},
          {"spec", {{"podSelector", group}, {"policyTypes", {"Ingress"}}, {"ingress", std::move(ingress)}}}};
}

bool IsPodOfWorker(const std::string& pod, const std::string& job_uid, int epoch, int rank) {
  // The controller of Jobs names them JOB-RANK-WORD, with a random word.
  absl::string_view rest = pod;
  if (!absl::ConsumePrefix(&rest, absl::StrCat(KubernetesJobName(job_uid, epoch), "-"))) return false;
  const std::vector<std::string> parts = absl::StrSplit(rest, '-');
  int index = -1;
  return parts.size() == 2 && absl::SimpleAtoi(parts[0], &index) && (rank < 0 || index == rank);
}

Json OwnedByTrainingJob(const std::string& job_name, const std::string& owner_uid) {
  return {
      {"metadata",
       {{"ownerReferences", Json::array({Owner("tessera.dev/v1", "TrainingJob", job_name, owner_uid)})}}}};
}

std::string HeldBecause(const Json& job) {
  if (!job.value("/spec/suspend"_json_pointer, false)) return "";
  const Json labels = job["metadata"].value("labels", Json::object());
  return absl::StrCat("Suspended: Kueue has not admitted it from queue '", labels.value(kQueueLabel, ""),
                      "'");
}

ProcessState StateOfPod(const Json& pod, int rank) {
  ProcessState state;
  state.rank = rank;
  state.pod = pod["metadata"].value("name", "");
  state.node = pod.value("spec", Json::object()).value("nodeName", "");
  const Json status = pod.value("status", Json::object());
  const std::string phase = status.value("phase", "Pending");
  state.running = phase == "Pending" || phase == "Running";
  const Json containers = status.value("containerStatuses", Json::array());
  const Json now = containers.empty() ? Json::object() : containers[0].value("state", Json::object());
  if (const Json scheduled = Condition(status, "PodScheduled"); scheduled.value("status", "") == "False") {
    state.waits = absl::StrCat(scheduled.value("reason", ""), ": ", scheduled.value("message", ""));
  } else if (now.contains("waiting") && now["waiting"].value("reason", "") != "ContainerCreating") {
    state.waits = absl::StrCat(now["waiting"].value("reason", ""), ": ", now["waiting"].value("message", ""));
  }
  if (!now.contains("terminated")) return state;
  state.running = false;
  // Evicted, preempted, drained or on a node that is gone: its exit code is not its own.
  if (Condition(status, "DisruptionTarget").value("status", "") == "True") return state;
  const Json& end = now["terminated"];
  state.exit_known = true;
  state.exit_code = end.value("exitCode", 0);
  if (end.value("reason", "") == "OOMKilled") {
    state.exit_code = kExitOutOfMemory;
  } else if (state.exit_code > kSignalBase) {
    state.signal = state.exit_code - kSignalBase;
  }
  return state;
}

}  // namespace tessera::scheduler

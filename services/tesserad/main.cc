// tesserad: opens the store, starts the controller, opens the doors, waits, drains.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "scheduler/controller/controller.h"
#include "scheduler/launch/worker_describer.h"
#include "scheduler/store/kubernetes_store.h"
#include "scheduler/store/memory_store.h"
#include "scheduler/store/observed_store.h"
#include "scheduler/store/sqlite_store.h"
#include "services/api/api.h"
#include "services/api/local_node.h"
#include "services/auth/client_token.h"
#include "services/kubernetes/job_resources.h"
#include "services/metrics/service_metrics.h"
#include "services/tesserad/doors.h"
#include "services/tesserad/idle_watch.h"
#include "services/tesserad/leadership.h"
#include "services/tesserad/options.h"
#include "services/tesserad/own_node.h"
#include "services/tesserad/state_directory.h"
#include "services/tesserad/stop_signal.h"
#include "services/tesserad/worker_place.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace tessera::services {
namespace {

constexpr absl::Duration kDrain = absl::Seconds(10);
constexpr absl::Duration kIdleCheck = absl::Seconds(1);

absl::StatusOr<std::unique_ptr<scheduler::JobStore>> OpenStore(const DaemonOptions& options,
                                                               const StateDirectory& state) {
  if (options.store == "memory") return scheduler::MakeMemoryStore();
  if (options.store == "kubernetes") {
    TESSERA_ASSIGN_OR_RETURN(const scheduler::KubeConfig config, scheduler::LoadKubeConfig());
    TESSERA_ASSIGN_OR_RETURN(auto client, scheduler::MakeApiClient(config));
    return scheduler::OpenKubernetesStore(std::move(client), config.ns);
  }
  return scheduler::OpenSqliteStore(state.File("jobs.db"));
}

scheduler::ControllerOptions ControllerOptionsFor(const DaemonOptions& options, const StateDirectory& state,
                                                  const v1::NodeProfile& node, size_t gpus,
                                                  const std::shared_ptr<scheduler::NodeRegistry>& nodes) {
  scheduler::ControllerOptions controller;
  controller.state_directory = state.path();
  controller.scheduler_address =
      options.kubernetes ? options.advertise : absl::StrCat("file:", state.endpoint_file());
  controller.node = node.name();
  controller.cores = node.devices(0).cores();
  controller.group_tokens = !options.token_review;
  controller.memory_bytes = options.memory_limit_bytes > 0 ? options.memory_limit_bytes
                                                           : PlannableBytes(node.devices(0).total_bytes());
  if (!options.kubernetes) controller.available_bytes = AvailableBytes;
  int64_t least = 0;  // which of the devices a name means is not known here
  for (const v1::DeviceProfile& device : node.devices()) {
    const int64_t bytes = device.name() == "cpu" ? 0 : device.total_bytes();
    if (bytes > 0 && (least == 0 || bytes < least)) least = bytes;
  }
  controller.gpu_bytes.assign(gpus, least);
  controller.links_doubted = [nodes](const std::string& name) { nodes->MarkDue(name).IgnoreError(); };
  if (options.workers.place_workers) {
    controller.memory_bytes = options.memory_limit_bytes;  // else the nodes' own
    controller.inventory = [nodes] {
      return scheduler::NodeInventory{nodes->Nodes(absl::Now()), nodes->Links(absl::Now())};
    };
  }
  return controller;
}

scheduler::WorkerDescriberOptions DescriberOptionsFor(const DaemonOptions& options,
                                                      const StateDirectory& state) {
  scheduler::WorkerDescriberOptions describer;
  describer.worker_program = options.worker_program;
  describer.cache_directory = state.File("describe");
  if (options.kubernetes) describer.arguments.emplace_back("--elsewhere");
  return describer;
}

void WaitForTheEnd(const DaemonOptions& options, StopSignal* stop, const IdleWatch& idle) {
  const bool forever = options.idle_exit == absl::InfiniteDuration();
  while (!stop->Wait(forever ? absl::InfiniteDuration() : std::min(kIdleCheck, options.idle_exit))) {
    if (!forever && idle.IsIdle(absl::Now(), options.idle_exit)) {
      spdlog::info("event=idle after={}", absl::FormatDuration(options.idle_exit));
      return;
    }
  }
}

// Connections are descriptors, and the usual soft limit of 1024 is below what the doors take.
void RaiseFileLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Tokens that are not this service's own are asked of Kubernetes.
void ReviewWith(TokenReviewer* reviewer, const std::string& service_account, BehindDoors* behind) {
  behind->worker_review = [reviewer, service_account](const std::string& bearer,
                                                      const v1::WorkerIdentity& worker) {
    return reviewer->CheckWorker(bearer, service_account, worker);
  };
  behind->review = [reviewer](const std::string& bearer, const std::string& rpc) {
    return reviewer->Check(bearer, rpc);
  };
}

// leadership: null where there is only one daemon.
absl::Status Serve(const DaemonOptions& options, Leadership* leadership, StopSignal* stop) {
  TESSERA_ASSIGN_OR_RETURN(const StateDirectory state, StateDirectory::Open(options.state_directory));
  const std::string token_file = options.token_file.empty() ? state.File("token") : options.token_file;
  TESSERA_ASSIGN_OR_RETURN(const auto token, ClientToken::Open(token_file));
  TESSERA_ASSIGN_OR_RETURN(const auto stored, OpenStore(options, state));
  StoreObserver observer;
  const auto store = scheduler::MakeObservedStore(
      stored.get(), [&observer](const scheduler::JobKey& key) { observer.Changed(key); });
  const auto nodes = std::make_shared<scheduler::NodeRegistry>();
  ServiceMetrics metrics(store.get(), TESSERA_VERSION, nodes);
  IdleWatch idle(store.get(), &metrics);

  const v1::NodeProfile node = ProfileLocalNode();
  std::vector<std::string> gpus = GpusForJobs(options, node);
  const scheduler::ControllerOptions controller_options =
      ControllerOptionsFor(options, state, node, gpus.size(), nodes);
  TESSERA_ASSIGN_OR_RETURN(const WorkerPlace place,
                           OpenWorkerPlace(options, state, node.name(), std::move(gpus)));
  const auto describer = scheduler::MakeWorkerDescriber(DescriberOptionsFor(options, state));
  const auto controller = scheduler::MakeController(controller_options, store.get(), place.launcher.get(),
                                                    describer.get(), &metrics);
  TESSERA_RETURN_IF_ERROR(controller->Start());

  std::unique_ptr<OwnNode> own_node;
  std::function<std::vector<v1::NodeProfile>()> own_profile;
  if (!options.workers.place_workers) {  // else this machine has an agent too
    TESSERA_ASSIGN_OR_RETURN(own_node, StartOwnNode(nodes, options.link_host, options.link_port));
    own_profile = [&own_node] { return std::vector{own_node->Profile()}; };
  }
  Api api(controller.get(), store.get(), {.nodes = own_profile, .registry = nodes});
  std::unique_ptr<JobResources> resources;
  if (place.links != nullptr) {
    resources = std::make_unique<JobResources>(place.kubernetes.get(), place.kubernetes_namespace, &api,
                                               store.get(), place.links.get());
    observer.Set(resources.get());
  }
  const auto unobserved = absl::MakeCleanup([&observer] { observer.Set(nullptr); });
  BehindDoors behind{.api = &api,
                     .controller = controller.get(),
                     .metrics = &metrics,
                     .idle = &idle,
                     .token_file = token_file,
                     .token = token};
  if (place.reviewer != nullptr) ReviewWith(place.reviewer.get(), options.workers.service_account, &behind);
  TESSERA_ASSIGN_OR_RETURN(ServiceDoors doors, ServiceDoors::Open(options, state, behind));
  if (leadership != nullptr) TESSERA_RETURN_IF_ERROR(leadership->Announce());

  if (options.insecure) spdlog::warn("event=insecure host={} tls=no", options.host);
  std::fputs(doors.Addresses(state).c_str(), stdout);
  std::fflush(stdout);
  WaitForTheEnd(options, stop, idle);

  spdlog::info("event=draining grace={}", absl::FormatDuration(kDrain));
  describer->Stop();  // nobody waits for jobs that are being planned
  doors.Stop(kDrain);
  controller->Stop();  // workers go on and are found again
  spdlog::info("event=stopped");
  return absl::OkStatus();
}

absl::Status Run(const DaemonOptions& options) {
  RaiseFileLimit();
  StopSignal stop;
  TESSERA_ASSIGN_OR_RETURN(const auto leadership, Leadership::Open(options));
  if (leadership != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(const bool leads, leadership->Await(options, &stop));
    if (!leads) return absl::OkStatus();
  }
  return Serve(options, leadership.get(), &stop);
}

}  // namespace
}  // namespace tessera::services

int main(int argc, char** argv) {
  const auto options = tessera::services::ParseOptions(argc, argv);
  if (options.exit_code >= 0) return options.exit_code;
  // Jobs' GPUs are given by NVML's numbers. Before there are threads, which may read the environment.
  if (std::getenv("CUDA_VISIBLE_DEVICES") == nullptr) ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  // Debian's absl searches for lock cycles unless told not to, at every lock that is waited for.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  spdlog::set_default_logger(spdlog::stderr_logger_mt("tesserad"));
  spdlog::set_pattern("time=%Y-%m-%dT%H:%M:%S.%e level=%l %v");
  if (const absl::Status status = tessera::services::Run(options); !status.ok()) {
    std::fprintf(stderr, "tesserad: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}

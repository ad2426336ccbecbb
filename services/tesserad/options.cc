#include "services/tesserad/options.h"

#include <cstdlib>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "proto/tessera/v1/quantity.h"

namespace tessera::services {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string DefaultStateDirectory() {
  if (std::string own = Environment("TESSERA_STATE_DIR"); !own.empty()) return own;
  if (const std::string xdg = Environment("XDG_STATE_HOME"); !xdg.empty()) return xdg + "/tessera";
  const std::string home = Environment("HOME");
  return home.empty() ? "" : home + "/.local/state/tessera";
}

bool IsLoopback(const std::string& host) { return absl::StartsWith(host, "127.") || host == "::1"; }

std::string CheckDuration(const std::string& text) {
  const auto duration = spec::ParseDuration(text);
  return duration.has_value() && duration->seconds() >= 0 ? "" : "must be a duration like 30s or 10m";
}

std::string CheckBytes(const std::string& text) {
  return spec::ParseBytes(text).has_value() ? "" : "must be a number of bytes like 512MiB or 2Gi";
}

void AddDoors(CLI::App* app, DaemonOptions* options) {
  app->add_option("--host", options->host, "address to listen on")->capture_default_str();
  app->add_option("--grpc-port", options->grpc_port,
                  "0 = any; default: that of the last run if free, else any")
      ->check(CLI::Range(0, 65535));
  app->add_option("--rest-port", options->rest_port,
                  "0 = any; default: that of the last run if free, else any")
      ->check(CLI::Range(0, 65535));
  app->add_flag(
      "--insecure", options->insecure,
      "allow a --host that other machines reach. There is no TLS: the token, with which anybody can run "
      "programs as you, and all job data travel in the clear");
  auto* tls = app->add_option(
      "--tls-host", options->tls_host,
      "listen on this address too, with TLS, for clients and workers on other machines; like 0.0.0.0");
  app->add_option("--tls-grpc-port", options->tls_grpc_port, "0 = any")
      ->check(CLI::Range(0, 65535))
      ->needs(tls);
  app->add_option("--tls-rest-port", options->tls_rest_port, "0 = any")
      ->check(CLI::Range(0, 65535))
      ->needs(tls);
  auto* certificate = app->add_option("--tls-cert", options->tls_certificate,
                                      "PEM file; `tessera certs` makes one. Read again when it changes");
  auto* key =
      app->add_option("--tls-key", options->tls_key,
                      "PEM file of its key, readable by you alone or, if it is root's, by your group");
  tls->needs(certificate)->needs(key);
  certificate->needs(tls);
  key->needs(tls);
  app->add_option("--rate-limit", options->rate_limit,
                  "calls per second that one client may make; 0 = any number")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
}

void AddKubernetes(CLI::App* app, DaemonOptions* options, std::string* worker_volume,
                   std::vector<std::string>* data_volumes) {
  auto* kubernetes =
      app->add_flag("--kubernetes", options->kubernetes,
                    "run workers as pods, with the service account of this pod or $KUBECONFIG");
  app->add_option("--advertise", options->advertise,
                  "by which worker pods reach gRPC: https://HOST:PORT of the port with TLS, or HOST:PORT of "
                  "the one without")
      ->needs(kubernetes);
  kubernetes->needs("--advertise");
  app->add_flag("--training-jobs", options->training_jobs,
                "keep jobs and TrainingJob custom resources of the namespace equal")
      ->needs(kubernetes);
  auto* lease =
      app->add_option(
             "--leader-lease", options->leader_lease,
             "with several replicas: work only while this Lease of the namespace is held, and stand by "
             "until then")
          ->needs(kubernetes);
  auto* pod = app->add_option("--pod-name", options->pod_name, "of this replica, which holds the Lease");
  lease->needs(pod)->needs("--token-file")->needs("--tls-host");
  pod->needs(lease);
  auto* review = app->add_flag("--token-review", options->token_review,
                               "take tokens of Kubernetes too, by TokenReview and SubjectAccessReview on "
                               "trainingjobs.tessera.dev, and know workers by those of their pods")
                     ->needs(kubernetes);
  app->add_option("--token-audience", options->token_audience, "for which such tokens must be made")
      ->needs(review)
      ->capture_default_str();
  app->add_flag("--node-agents", options->workers.place_workers,
                "plan for the nodes whose tessera-agent reports here, and place each worker on its node")
      ->needs(kubernetes);
  app->add_option("--worker-image", options->workers.worker_image, "image that worker pods run")
      ->needs(kubernetes);
  app->add_option("--worker-ca-secret", options->workers.ca_secret,
                  "Secret whose ca.crt worker pods know an --advertise with https by")
      ->needs(kubernetes);
  app->add_option("--worker-service-account", options->workers.service_account, "of worker pods")
      ->needs(kubernetes)
      ->capture_default_str();
  app->add_option("--worker-gpu-resource", options->workers.gpus.resource,
                  "resource that pods of workers with GPUs ask for")
      ->needs(kubernetes)
      ->capture_default_str();
  app->add_option("--worker-gpu-runtime-class", options->workers.gpus.runtime_class, "of these pods")
      ->needs(kubernetes);
  app->add_option("--worker-gpu-tolerations", options->workers.gpus.tolerations, "of these pods, as JSON")
      ->needs(kubernetes);
  app->add_option(
         "--worker-metrics-port", options->workers.metrics_port,
         "at which worker pods serve /metrics to the cluster, without TLS or token; default: not at all")
      ->check(CLI::Range(1, 65535))
      ->needs(kubernetes);
  app->add_option("--worker-priority-class", options->workers.priority_class, "of worker pods")
      ->needs(kubernetes);
  app->add_option("--kueue-queue", options->workers.kueue_queue,
                  "let Kueue admit each group of workers, from the queue that its job names or else this one")
      ->needs(kubernetes);
  app->add_option("--worker-volume", *worker_volume,
                  "pvc:CLAIM or hostPath:/DIRECTORY that is the state directory here and in worker pods")
      ->needs(kubernetes);
  app->add_option("--data-volume", *data_volumes,
                  "pvc:CLAIM=/MOUNT or hostPath:/DIRECTORY=/MOUNT, read-only in worker pods; may be repeated")
      ->needs(kubernetes);
}

void ReadVolumes(const std::string& worker_volume, const std::vector<std::string>& data_volumes,
                 DaemonOptions* options) {
  options->workers.state = {worker_volume, options->state_directory};
  for (const std::string& text : data_volumes) {
    const size_t split = text.find('=');
    options->workers.data.push_back(
        {text.substr(0, split), split == std::string::npos ? "" : text.substr(split + 1)});
  }
}

// Throws what is wrong with options that are right each for itself.
void CheckTogether(const DaemonOptions& options) {
  if (options.state_directory.empty())
    throw CLI::ValidationError("--state-dir", "is needed: HOME is not set");
  if (!options.insecure && !IsLoopback(options.host)) {
    throw CLI::ValidationError("--host", options.host + " is no loopback address; see --insecure");
  }
  if (options.store == "kubernetes" && options.leader_lease.empty()) {
    throw CLI::ValidationError("--store",
                               "kubernetes needs --leader-lease: only one tesserad may write there");
  }
  if (absl::StartsWith(options.advertise, "https://") && options.workers.ca_secret.empty()) {
    throw CLI::ValidationError("--advertise", options.advertise + " needs --worker-ca-secret");
  }
  if (!options.kubernetes) return;
  const absl::Status status = scheduler::CheckKubernetesOptions(options.workers);
  if (!status.ok()) throw CLI::ValidationError(std::string(status.message()));
}

}  // namespace

DaemonOptions ParseOptions(int argc, char** argv) {
  DaemonOptions options;
  options.state_directory = DefaultStateDirectory();
  std::string idle;
  std::string memory;
  CLI::App app("tesserad keeps training jobs, plans them, starts their workers and serves the API.");
  app.set_version_flag("--version", TESSERA_VERSION);
  app.add_option(
         "--state-dir", options.state_directory,
         "where jobs, logs and checkpoints are kept; default $TESSERA_STATE_DIR, $XDG_STATE_HOME/tessera, "
         "~/.local/state/tessera")
      ->capture_default_str();
  AddDoors(&app, &options);
  app.add_option("--store", options.store,
                 "sqlite in the state directory; kubernetes: TrainingRecord resources of the namespace, with "
                 "--leader-lease; or memory: jobs are forgotten at the end")
      ->check(CLI::IsMember({"sqlite", "kubernetes", "memory"}))
      ->capture_default_str();
  app.add_option(
      "--token-file", options.token_file,
      "the token that callers have to show; default: `token` in the state directory, made if missing");
  app.add_option("--worker-program", options.worker_program, "default: tessera-worker beside tesserad");
  app.add_option("--memory-limit", memory,
                 "memory to plan with, like 8Gi; default: what the machine or its cgroup has, less a tenth "
                 "(at least 512 MiB)")
      ->check(CLI::Validator(CheckBytes, "BYTES"));
  auto* link_host =
      app.add_option("--link-host", options.link_host,
                     "IPv4 address of this machine in the network of other nodes' agents: answer their "
                     "link probes there, and measure links to them; default: no");
  app.add_option("--link-port", options.link_port, "0 = any")->check(CLI::Range(0, 65535))->needs(link_host);
  std::string worker_volume;
  std::vector<std::string> data_volumes;
  AddKubernetes(&app, &options, &worker_volume, &data_volumes);
  app.add_option("--idle-exit", idle, "end after this time without calls and unfinished jobs; default: never")
      ->check(CLI::Validator(CheckDuration, "DURATION"));
  try {
    app.parse(argc, argv);
    ReadVolumes(worker_volume, data_volumes, &options);
    CheckTogether(options);
  } catch (const CLI::ParseError& error) {
    options.exit_code = app.exit(error) == 0 ? 0 : 2;
    return options;
  }
  if (!idle.empty()) options.idle_exit = absl::Seconds(spec::ParseDuration(idle)->seconds());
  if (!memory.empty()) options.memory_limit_bytes = *spec::ParseBytes(memory);
  return options;
}

}  // namespace tessera::services

#include "services/tesserad/leadership.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "scheduler/kube/kube_config.h"
#include "services/auth/client_token.h"
#include "services/auth/tls_files.h"
#include "services/rest/server.h"
#include "spdlog/spdlog.h"

namespace tessera::services {
namespace {

using Json = nlohmann::json;
constexpr char kLeadsLabel[] = "tessera.dev/leads";

// What it would still write may be another's by now.
[[noreturn]] void EndAtOnce() {
  spdlog::critical("event=lease_lost: another replica may lead");
  spdlog::default_logger()->flush();
  ::_exit(1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Leadership>> Leadership::Open(const DaemonOptions& options) {
  if (options.leader_lease.empty()) return nullptr;
  TESSERA_ASSIGN_OR_RETURN(const scheduler::KubeConfig config, scheduler::LoadKubeConfig());
  TESSERA_ASSIGN_OR_RETURN(auto client, scheduler::MakeApiClient(config));
  return std::unique_ptr<Leadership>(new Leadership(std::move(client), config.ns, options));
}

Leadership::Leadership(std::unique_ptr<scheduler::ApiClient> client, std::string ns,
                       const DaemonOptions& options)
    : client_(std::move(client)),
      pods_(absl::StrCat("/api/v1/namespaces/", ns, "/pods")),
      lease_name_(options.leader_lease),
      pod_(options.pod_name),
      lease_(client_.get(), {.ns = std::move(ns), .name = options.leader_lease, .holder = options.pod_name},
             EndAtOnce) {}

absl::StatusOr<bool> Leadership::Await(const DaemonOptions& options, StopSignal* stop) {
  RestOptions door{.host = options.tls_host, .port = options.tls_rest_port};
  TESSERA_ASSIGN_OR_RETURN(door.tls, TlsFiles::Open(options.tls_certificate, options.tls_key));
  TESSERA_ASSIGN_OR_RETURN(door.content.token, ClientToken::Open(options.token_file));
  door.content.standby = absl::StrCat("pod ", pod_, " stands by: another one holds the lease ", lease_name_);
  TESSERA_ASSIGN_OR_RETURN(const auto server, RestServer::Start(door, nullptr));
  spdlog::info("event=standing_by lease={} pod={}", lease_name_, pod_);
  const bool leads = lease_.Acquire([stop] { return stop->Wait(absl::ZeroDuration()); });
  server->Stop(absl::ZeroDuration());
  if (leads) spdlog::info("event=leading lease={} pod={}", lease_name_, pod_);
  return leads;
}

absl::Status Leadership::Announce() {
  TESSERA_RETURN_IF_ERROR(SetLabel(pod_, true));
  TESSERA_ASSIGN_OR_RETURN(
      const scheduler::ObjectList pods,
      scheduler::ListAll(*client_,
                         absl::StrCat(pods_, "?labelSelector=",
                                      scheduler::QueryEscape(absl::StrCat(kLeadsLabel, "=", lease_name_)))));
  for (const Json& pod : pods.items) {
    const std::string name = pod["metadata"].value("name", "");
    if (name == pod_) continue;
    const absl::Status status = SetLabel(name, false);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  return absl::OkStatus();
}

absl::Status Leadership::SetLabel(const std::string& pod, bool leads) {
  const Json value = leads ? Json(lease_name_) : Json(nullptr);
  return client_
      ->MergePatch(absl::StrCat(pods_, "/", pod), {{"metadata", {{"labels", {{kLeadsLabel, value}}}}}})
      .status();
}

}  // namespace tessera::services

#include "scheduler/kube/leader_lease.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;

std::string MicroTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

// Fields of an object may be null or missing.
std::string TextIn(const Json& spec, const char* field) {
  const auto it = spec.find(field);
  return it != spec.end() && it->is_string() ? it->get<std::string>() : "";
}
int NumberIn(const Json& spec, const char* field, int otherwise) {
  const auto it = spec.find(field);
  return it != spec.end() && it->is_number_integer() ? it->get<int>() : otherwise;
}

}  // namespace

LeaderLease::LeaderLease(ApiClient* client, LeaseOptions options, std::function<void()> lost)
    : client_(client), options_(std::move(options)), lost_(std::move(lost)) {}

LeaderLease::~LeaderLease() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  if (renewer_.joinable()) renewer_.join();
  if (watchdog_.joinable()) watchdog_.join();
  absl::MutexLock lock(&mutex_);
  if (!held_) return;
  const Json patch = {{"metadata", {{"resourceVersion", version_}}}, {"spec", {{"holderIdentity", nullptr}}}};
  const absl::Status status = client_->MergePatch(Path(), patch).status();
  if (!status.ok()) spdlog::warn("event=lease_not_returned error=\"{}\"", status.ToString());
}

std::string LeaderLease::Path() const {
  return absl::StrCat("/apis/coordination.k8s.io/v1/namespaces/", options_.ns, "/leases/", options_.name);
}

Json LeaderLease::Spec(absl::Time acquired, int transitions) const {
  return {{"holderIdentity", options_.holder},
          {"leaseDurationSeconds", absl::ToInt64Seconds(absl::Ceil(options_.duration, absl::Seconds(1)))},
          {"acquireTime", MicroTime(acquired)},
          {"renewTime", MicroTime(acquired)},
          {"leaseTransitions", transitions}};
}

std::string LeaderLease::HeldBy() const {
  absl::MutexLock lock(&mutex_);
  return held_by_;
}

bool LeaderLease::Acquire(const std::function<bool()>& stop) {
  while (!stop()) {
    const absl::StatusOr<bool> taken = TryAcquire();
    // A conflict is another candidate that was faster.
    if (!taken.ok() && !absl::IsAborted(taken.status()) && !absl::IsAlreadyExists(taken.status())) {
      spdlog::warn("event=lease_unreachable lease={} error=\"{}\"", options_.name, taken.status().ToString());
    }
    if (taken.ok() && *taken) {
      renewer_ = std::thread([this] { RenewUntilTheEnd(); });
      watchdog_ = std::thread([this] { WatchTheDeadline(); });
      return true;
    }
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&stop_), options_.interval);
  }
  return false;
}

absl::StatusOr<bool> LeaderLease::TryAcquire() {
  const absl::StatusOr<Json> lease = client_->Get(Path());
  if (absl::IsNotFound(lease.status())) {
    TESSERA_RETURN_IF_ERROR(Take(nullptr));
    return true;
  }
  TESSERA_RETURN_IF_ERROR(lease.status());
  const absl::Time now = absl::Now();
  const Json spec = lease->value("spec", Json::object());
  const std::string holder = TextIn(spec, "holderIdentity");
  {
    absl::MutexLock lock(&mutex_);
    held_by_ = holder;
  }
  if (ResourceVersionOf(*lease) != seen_version_) {
    seen_version_ = ResourceVersionOf(*lease);
    seen_at_ = now;
  }
  // An own one, of a process before this one of the same name, is renewed by nobody.
  const absl::Duration duration = absl::Seconds(NumberIn(spec, "leaseDurationSeconds", 0));
  if (!holder.empty() && holder != options_.holder && now < seen_at_ + duration) return false;
  TESSERA_RETURN_IF_ERROR(Take(*lease));
  return true;
}

// `lease`: as it was seen, or null for one that is not there.
absl::Status LeaderLease::Take(const Json& lease) {
  const absl::Time now = absl::Now();
  absl::StatusOr<Json> taken;
  if (lease.is_null()) {
    const std::string path = Path();
    taken = client_->Create(path.substr(0, path.rfind('/')), {{"apiVersion", "coordination.k8s.io/v1"},
                                                              {"kind", "Lease"},
                                                              {"metadata", {{"name", options_.name}}},
                                                              {"spec", Spec(now, 0)}});
  } else {
    const int transitions = NumberIn(lease.value("spec", Json::object()), "leaseTransitions", 0);
    taken = client_->MergePatch(Path(), {{"metadata", {{"resourceVersion", ResourceVersionOf(lease)}}},
                                         {"spec", Spec(now, transitions + 1)}});
  }
  TESSERA_RETURN_IF_ERROR(taken.status());
  absl::MutexLock lock(&mutex_);
  held_ = true;
  held_by_ = options_.holder;
  renewed_ = now;
  version_ = ResourceVersionOf(*taken);
  return absl::OkStatus();
}

absl::Status LeaderLease::Renew() {
  const absl::Time now = absl::Now();
  std::string version;
  {
    absl::MutexLock lock(&mutex_);
    version = version_;
  }
  absl::StatusOr<Json> renewed = client_->MergePatch(
      Path(), {{"metadata", {{"resourceVersion", version}}}, {"spec", {{"renewTime", MicroTime(now)}}}});
  if (absl::IsAborted(renewed.status())) {
    // Changed by somebody: by a renewal of this holder whose answer was lost, or by one that took it.
    TESSERA_ASSIGN_OR_RETURN(renewed, client_->Get(Path()));
    if (TextIn(renewed->value("spec", Json::object()), "holderIdentity") != options_.holder) {
      return absl::AbortedError("another holds it");
    }
  }
  TESSERA_RETURN_IF_ERROR(renewed.status());
  absl::MutexLock lock(&mutex_);
  version_ = ResourceVersionOf(*renewed);
  renewed_ = now;
  return absl::OkStatus();
}

void LeaderLease::RenewUntilTheEnd() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), options_.interval)) return;
    }
    const absl::Status status = Renew();
    if (status.ok()) continue;
    spdlog::warn("event=lease_not_renewed lease={} error=\"{}\"", options_.name, status.ToString());
    if (!absl::IsAborted(status) && !absl::IsNotFound(status)) continue;
    absl::MutexLock lock(&mutex_);
    renewed_ = absl::InfinitePast();  // it is lost now
    return;
  }
}

void LeaderLease::WatchTheDeadline() {
  {
    absl::MutexLock lock(&mutex_);
    while (!stop_ && absl::Now() < renewed_ + options_.deadline) {
      const absl::Time before = renewed_;
      const auto changed = [this, before]()
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || renewed_ != before; };
      mutex_.AwaitWithDeadline(absl::Condition(&changed), before + options_.deadline);
    }
    if (stop_) return;
    held_ = false;
  }
  lost_();
}

}  // namespace tessera::scheduler

#include "scheduler/launch/pod_placer.h"

#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "scheduler/launch/pod_placement.h"

namespace tessera::scheduler {

using Json = nlohmann::json;

PodPlacer::PodPlacer(ApiClient* client, std::string ns, absl::Duration retry)
    : client_(client), ns_(std::move(ns)), retry_(retry), thread_([this] { Run(); }) {}

PodPlacer::~PodPlacer() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void PodPlacer::Look(std::shared_ptr<const Mirror::Objects> pods) {
  absl::MutexLock lock(&mutex_);
  pods_ = std::move(pods);
  changed_ = true;
}

void PodPlacer::Run() {
  absl::Duration wait = absl::InfiniteDuration();
  while (true) {
    std::shared_ptr<const Mirror::Objects> pods;
    {
      absl::MutexLock lock(&mutex_);
      const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || changed_; };
      mutex_.AwaitWithTimeout(absl::Condition(&woken), wait);
      if (stop_) return;
      changed_ = false;
      pods = pods_;
    }
    wait = pods == nullptr || Place(*pods) ? absl::InfiniteDuration() : retry_;
  }
}

bool PodPlacer::Place(const Mirror::Objects& pods) {
  bool all = true;
  std::set<std::string> waiting;
  for (const auto& [name, pod] : pods) {
    const Json patch = PlacementOf(*pod);
    if (patch.is_null()) continue;
    const std::string uid = (*pod)["metadata"].value("uid", "");
    waiting.insert(uid);
    if (placed_.contains(uid)) continue;
    const absl::Status status =
        client_->MergePatch(absl::StrCat("/api/v1/namespaces/", ns_, "/pods/", name), patch).status();
    if (status.ok() || absl::IsNotFound(status)) {
      placed_.insert(uid);
      continue;
    }
    all = false;
    spdlog::warn("event=pod_not_placed pod={} error=\"{}\"", name, status.ToString());
  }
  std::erase_if(placed_, [&](const std::string& uid) { return !waiting.contains(uid); });
  return all;
}

}  // namespace tessera::scheduler

#include "scheduler/kube/mirror.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace tessera::scheduler {
namespace {

using Json = nlohmann::json;
constexpr absl::Duration kFirstWait = absl::Milliseconds(200);
constexpr absl::Duration kLongestWait = absl::Seconds(10);

}  // namespace

Mirror::Mirror(ApiClient* client, std::string path, std::function<void()> changed)
    : client_(client), path_(std::move(path)), changed_(std::move(changed)), thread_([this] { Run(); }) {}

Mirror::~Mirror() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

std::shared_ptr<const Mirror::Objects> Mirror::Now() const {
  absl::MutexLock lock(&mutex_);
  return objects_;
}

void Mirror::Run() {
  absl::Duration wait = kFirstWait;
  while (!stop_) {
    const absl::Status status = Follow();
    if (status.ok()) {
      wait = kFirstWait;
      continue;
    }
    if (absl::IsOutOfRange(status)) {
      version_.clear();  // too old: list again, at once
      continue;
    }
    spdlog::warn("event=mirror_cut_off path={} error=\"{}\"", path_, status.ToString());
    absl::MutexLock lock(&mutex_);
    const auto stopped = [this] { return stop_.load(); };
    mutex_.AwaitWithTimeout(absl::Condition(&stopped), wait);
    wait = std::min(wait * 2, kLongestWait);
  }
}

absl::Status Mirror::Follow() {
  if (version_.empty()) {
    TESSERA_ASSIGN_OR_RETURN(ObjectList list, ListAll(*client_, path_));
    auto objects = std::make_shared<Objects>();
    for (Json& item : list.items) {
      const std::string name = NameOf(item);
      (*objects)[name] = std::make_shared<const Json>(std::move(item));
    }
    version_ = list.resource_version;
    {
      absl::MutexLock lock(&mutex_);
      objects_ = std::move(objects);
    }
    if (changed_) changed_();
  }
  return client_->Watch(
      path_, version_,
      [this](const Json& event) {
        Change(event);
        return !stop_.load();
      },
      [this] { return stop_.load(); });
}

void Mirror::Change(const Json& event) {
  const Json& object = event["object"];
  const std::string type = event.value("type", "");
  version_ = ResourceVersionOf(object);
  if (type == "BOOKMARK") return;
  {
    absl::MutexLock lock(&mutex_);
    auto objects = std::make_shared<Objects>(*objects_);
    if (type == "DELETED") {
      objects->erase(NameOf(object));
    } else {
      (*objects)[NameOf(object)] = std::make_shared<const Json>(object);
    }
    objects_ = std::move(objects);
  }
  if (changed_) changed_();
}

}  // namespace tessera::scheduler

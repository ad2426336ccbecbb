#include "scheduler/controller/watch_registry.h"

#include <utility>

namespace tessera::scheduler {

int64_t WatchRegistry::Add(const JobKey& key, SharedUpdate first, Callback callback) {
  absl::MutexLock lock(&mutex_);
  const int64_t id = next_++;
  watchers_[id] = std::make_shared<Watcher>(Watcher{key, std::move(callback)});
  if (first != nullptr) updates_.push_back({id, std::move(first)});
  return id;
}

void WatchRegistry::Remove(int64_t watch) {
  absl::MutexLock lock(&mutex_);
  auto it = watchers_.find(watch);
  if (it == watchers_.end()) return;
  const std::shared_ptr<Watcher> watcher = it->second;
  watcher->removed = true;
  watchers_.erase(it);
  if (std::this_thread::get_id() == deliverer_) return;
  const auto idle = [&] { return !watcher->running; };
  mutex_.Await(absl::Condition(&idle));
}

void WatchRegistry::Publish(const JobKey& key, v1::WatchTrainingJobResponse update) {
  const auto shared = std::make_shared<const WatchUpdate>(std::move(update));
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, watcher] : watchers_) {
    if (watcher->key == key) updates_.push_back({id, shared});
  }
}

bool WatchRegistry::Watched(const JobKey& key) {
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, watcher] : watchers_) {
    if (watcher->key == key) return true;
  }
  return false;
}

void WatchRegistry::Deliver() {
  absl::MutexLock lock(&mutex_);
  deliverer_ = std::this_thread::get_id();
  while (!updates_.empty()) {
    const Update update = std::move(updates_.front());
    updates_.pop_front();
    auto it = watchers_.find(update.watch);
    if (it == watchers_.end()) continue;
    const std::shared_ptr<Watcher> watcher = it->second;
    watcher->running = true;
    mutex_.Unlock();
    const bool more = watcher->callback(update.update) && !update.update->message().deleted();
    mutex_.Lock();
    watcher->running = false;
    if (!more) watchers_.erase(update.watch);
  }
}

}  // namespace tessera::scheduler

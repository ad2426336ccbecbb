#include "scheduler/controller/live_jobs.h"

#include <utility>

#include "base/check.h"

namespace tessera::scheduler {
namespace {

// A suspended job has no deadline and no claim: until somebody asks for something there is nothing to decide.
bool Rests(const LiveJob& live) {
  return live.state() == job::JobState::kSuspended && live.record.job.spec().suspend() &&
         !live.status().cancel_requested() && !live.changes_size() && live.record.processes.empty() &&
         live.budgets.trigger.empty() && !live.unsaved && !live.dirty && !live.changed;
}

}  // namespace

void LiveJobs::Add(LiveJob live) {
  const std::string uid = live.record.job.uid();
  uids_[live.key()] = uid;
  const auto [it, added] = jobs_.emplace(uid, std::move(live));
  TESSERA_CHECK(added);
  awake_[uid] = &it->second;
}

LiveJob* LiveJobs::Find(const std::string& uid) {
  const auto it = jobs_.find(uid);
  if (it == jobs_.end()) return nullptr;
  return awake_[uid] = &it->second;
}

LiveJob* LiveJobs::Find(const JobKey& key) {
  const auto it = uids_.find(key);
  return it == uids_.end() ? nullptr : Find(it->second);
}

LiveJob LiveJobs::Take(const std::string& uid) {
  awake_.erase(uid);
  auto node = jobs_.extract(uid);
  TESSERA_CHECK(!node.empty());
  uids_.erase(node.mapped().key());
  return std::move(node.mapped());
}

void LiveJobs::LetRest() {
  std::erase_if(awake_, [](const auto& entry) { return Rests(*entry.second); });
}

}  // namespace tessera::scheduler

#include "scheduler/store/memory_store.h"

#include <deque>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "scheduler/store/store_encoding.h"

namespace tessera::scheduler {
namespace {

class MemoryStore : public JobStore {
 public:
  absl::StatusOr<JobRecord> Create(const v1::TrainingJob& job, const std::string& request_id,
                                   const std::string& notes, const v1::Plan* plan) override {
    absl::MutexLock lock(&mutex_);
    const JobKey key = KeyOf(job);
    const auto request = std::make_pair(key.ns, request_id);
    TESSERA_ASSIGN_OR_RETURN(std::optional<JobRecord> seen, FirstAnswer(job, request_id));
    if (seen.has_value()) return *std::move(seen);
    if (jobs_.contains(key)) return JobExists(key);
    JobRecord record;
    record.job = job;
    record.notes = notes;
    Stamp(record);
    jobs_[key].record = record;
    if (plan != nullptr) jobs_[key].plans.push_back(*plan);
    if (!request_id.empty()) {
      requests_[request] = {CreationFingerprint(job), record};
      request_order_.push_back(request);
      if (request_order_.size() > kMaxRequestIds) {
        requests_.erase(request_order_.front());
        request_order_.pop_front();
      }
    }
    return record;
  }

  absl::StatusOr<std::optional<JobRecord>> FindRequest(const v1::TrainingJob& job,
                                                       const std::string& request_id) override {
    absl::MutexLock lock(&mutex_);
    return FirstAnswer(job, request_id);
  }

  absl::StatusOr<JobRecord> Get(const JobKey& key) override {
    absl::MutexLock lock(&mutex_);
    auto it = jobs_.find(key);
    if (it == jobs_.end()) return NoSuchJob(key);
    return it->second.record;
  }

  absl::StatusOr<JobPage> List(const std::string& ns, int page_size, const std::string& page_token) override {
    absl::MutexLock lock(&mutex_);
    return PageOf(jobs_, ns, page_size, page_token, [](const auto& job) { return job.record; });
  }

  absl::StatusOr<JobRecord> Update(const JobRecord& record) override {
    absl::MutexLock lock(&mutex_);
    const JobKey key = KeyOf(record.job);
    auto it = jobs_.find(key);
    if (it == jobs_.end()) return NoSuchJob(key);
    if (it->second.record.job.etag() != record.job.etag()) return StaleEtag(key);
    JobRecord next = record;
    Stamp(next);
    it->second.record = next;
    return next;
  }

  absl::Status Delete(const JobKey& key, const std::string& etag) override {
    absl::MutexLock lock(&mutex_);
    auto it = jobs_.find(key);
    if (it == jobs_.end()) return NoSuchJob(key);
    if (!etag.empty() && it->second.record.job.etag() != etag) return StaleEtag(key);
    ++revision_;
    jobs_.erase(it);
    return absl::OkStatus();
  }

  absl::Status AddPlan(const JobKey& key, const v1::Plan& plan) override {
    absl::MutexLock lock(&mutex_);
    auto it = jobs_.find(key);
    if (it == jobs_.end()) return NoSuchJob(key);
    ++revision_;
    it->second.plans.push_back(plan);
    if (it->second.plans.size() > kMaxPlansPerJob) it->second.plans.pop_front();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<v1::Plan>> Plans(const JobKey& key) override {
    absl::MutexLock lock(&mutex_);
    auto it = jobs_.find(key);
    if (it == jobs_.end()) return NoSuchJob(key);
    return std::vector<v1::Plan>(it->second.plans.begin(), it->second.plans.end());
  }

  absl::Status AddEvent(const JobKey& key, const v1::Event& event) override {
    absl::MutexLock lock(&mutex_);
    auto it = jobs_.find(key);
    if (it == jobs_.end()) return NoSuchJob(key);
    it->second.events.push_back(event);
    it->second.events.back().set_revision(++revision_);
    if (it->second.events.size() > kMaxEventsPerJob) it->second.events.pop_front();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<v1::Event>> Events(const JobKey& key) override {
    absl::MutexLock lock(&mutex_);
    auto it = jobs_.find(key);
    if (it == jobs_.end()) return NoSuchJob(key);
    return std::vector<v1::Event>(it->second.events.begin(), it->second.events.end());
  }

 private:
  absl::StatusOr<std::optional<JobRecord>> FirstAnswer(const v1::TrainingJob& job,
                                                       const std::string& request_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto seen = requests_.find(std::make_pair(KeyOf(job).ns, request_id));
    if (request_id.empty() || seen == requests_.end()) return std::nullopt;
    if (seen->second.fingerprint != CreationFingerprint(job)) return RequestIdReused(request_id);
    return seen->second.answer;
  }

  struct Entry {
    JobRecord record;
    std::deque<v1::Plan> plans;
    std::deque<v1::Event> events;
  };
  struct Request {
    std::string fingerprint;
    JobRecord answer;
  };

  void Stamp(JobRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    record.revision = ++revision_;
    record.job.set_etag(EtagOf(record.revision));
  }

  absl::Mutex mutex_;
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<JobKey, Entry> jobs_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, Request> requests_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<std::string, std::string>> request_order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<JobStore> MakeMemoryStore() { return std::make_unique<MemoryStore>(); }

}  // namespace tessera::scheduler

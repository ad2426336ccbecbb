#include "scheduler/store/observed_store.h"

#include <utility>

namespace tessera::scheduler {
namespace {

class ObservedStore final : public JobStore {
 public:
  ObservedStore(JobStore* inner, std::function<void(const JobKey&)> changed)
      : inner_(inner), changed_(std::move(changed)) {}

  absl::StatusOr<JobRecord> Create(const v1::TrainingJob& job, const std::string& request_id,
                                   const std::string& notes, const v1::Plan* plan) override {
    return Tell({job.namespace_(), job.name()}, inner_->Create(job, request_id, notes, plan));
  }
  absl::StatusOr<std::optional<JobRecord>> FindRequest(const v1::TrainingJob& job,
                                                       const std::string& request_id) override {
    return inner_->FindRequest(job, request_id);
  }
  absl::StatusOr<JobRecord> Get(const JobKey& key) override { return inner_->Get(key); }
  absl::StatusOr<JobPage> List(const std::string& ns, int page_size, const std::string& page_token) override {
    return inner_->List(ns, page_size, page_token);
  }
  absl::StatusOr<JobRecord> Update(const JobRecord& record) override {
    return Tell({record.job.namespace_(), record.job.name()}, inner_->Update(record));
  }
  absl::Status Delete(const JobKey& key, const std::string& etag) override {
    return Tell(key, inner_->Delete(key, etag));
  }
  absl::Status AddPlan(const JobKey& key, const v1::Plan& plan) override {
    return Tell(key, inner_->AddPlan(key, plan));
  }
  absl::StatusOr<std::vector<v1::Plan>> Plans(const JobKey& key) override { return inner_->Plans(key); }
  absl::Status AddEvent(const JobKey& key, const v1::Event& event) override {
    return Tell(key, inner_->AddEvent(key, event));
  }
  absl::StatusOr<std::vector<v1::Event>> Events(const JobKey& key) override { return inner_->Events(key); }

 private:
  template <typename Result>
  Result Tell(const JobKey& key, Result result) {
    if (result.ok()) changed_(key);
    return result;
  }

  JobStore* const inner_;
  const std::function<void(const JobKey&)> changed_;
};

}  // namespace

std::unique_ptr<JobStore> MakeObservedStore(JobStore* inner, std::function<void(const JobKey&)> changed) {
  return std::make_unique<ObservedStore>(inner, std::move(changed));
}

}  // namespace tessera::scheduler

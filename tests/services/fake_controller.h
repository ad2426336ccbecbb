// A controller that keeps its promises in memory and does nothing by itself.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/controller/controller.h"
#include "scheduler/store/memory_store.h"
#include "tests/patience.h"

namespace tessera::services {

class FakeController : public scheduler::Controller {
 public:
  explicit FakeController(scheduler::JobStore* store) : store_(store) {}

  absl::Status Start() override { return absl::OkStatus(); }
  void Stop() override {}
  absl::StatusOr<v1::CreateTrainingJobResponse> Create(const v1::TrainingJob& job,
                                                       const std::string& request_id, bool validate_only,
                                                       const std::function<bool()>& caller_gone) override;
  absl::StatusOr<v1::TrainingJob> Cancel(const scheduler::JobKey& key) override;
  absl::StatusOr<v1::TrainingJob> Suspend(const scheduler::JobKey& key) override;
  absl::StatusOr<v1::TrainingJob> Resume(const scheduler::JobKey& key) override;
  absl::StatusOr<v1::TrainingJob> Update(const scheduler::JobKey& key, const std::string& etag,
                                         const std::function<void(v1::TrainingJobSpec*)>& change) override;
  absl::StatusOr<v1::TrainingJob> Resize(const scheduler::JobKey& key, const std::string& etag,
                                         int workers) override;
  absl::StatusOr<v1::TrainingJob> RecomputeBudgets(const scheduler::JobKey& key,
                                                   const scheduler::BudgetRequest& request) override;
  absl::Status Delete(const scheduler::JobKey& key, const std::string& etag) override;
  absl::StatusOr<int64_t> Watch(const scheduler::JobKey& key, int64_t from_revision,
                                WatchCallback callback) override;
  void Unwatch(int64_t watch) override;

  absl::StatusOr<std::string> WorkerToken(const std::string& job_uid, int epoch) override;
  absl::Status WorkerConnected(const v1::Hello& hello, std::shared_ptr<scheduler::WorkerSink> sink) override;
  void WorkerMessage(const v1::WorkerIdentity& who, const v1::WorkerUp& message) override;
  void WorkerDisconnected(const v1::WorkerIdentity& who,
                          const std::shared_ptr<scheduler::WorkerSink>& sink) override;
  absl::StatusOr<v1::StoreResponse> Store(const v1::StoreRequest& request, absl::Time deadline) override;

  // For tests.
  absl::StatusOr<v1::TrainingJob> SetState(const scheduler::JobKey& key, v1::JobState state);
  absl::StatusOr<v1::TrainingJob> Change(const scheduler::JobKey& key,
                                         const std::function<void(v1::TrainingJob*)>& edit);
  // Until `wanted` holds of the number of open sinks, watches, messages or disconnects.
  bool Await(const std::function<bool(FakeController&)>& wanted);
  void SendToAll(const v1::WorkerDown& message);

  std::function<void()> during_create;  // set before any call
  absl::Mutex mutex_;
  std::map<int64_t, std::pair<scheduler::JobKey, WatchCallback>> watches_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<scheduler::WorkerSink>> sinks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> messages_ ABSL_GUARDED_BY(mutex_);  // "rank:step"
  int abandoned_ ABSL_GUARDED_BY(mutex_) = 0;                  // creations whose caller had gone
  int disconnects_ ABSL_GUARDED_BY(mutex_) = 0;

 private:
  void Publish(const scheduler::JobKey& key, const scheduler::SharedUpdate& update);

  scheduler::JobStore* const store_;
  int64_t last_watch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::services

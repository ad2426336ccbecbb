#include "tests/services/fake_controller.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tessera::services {
namespace {

scheduler::SharedUpdate UpdateOf(const scheduler::JobRecord& record) {
  v1::WatchTrainingJobResponse update;
  update.set_revision(record.revision);
  *update.mutable_training_job() = record.job;
  return std::make_shared<const scheduler::WatchUpdate>(std::move(update));
}

}  // namespace

absl::StatusOr<v1::CreateTrainingJobResponse> FakeController::Create(
    const v1::TrainingJob& job, const std::string& request_id, bool validate_only,
    const std::function<bool()>& caller_gone) {
  if (during_create) during_create();
  v1::CreateTrainingJobResponse response;
  *response.mutable_training_job() = job;
  if (validate_only) {
    response.mutable_plan()->set_generation(1);
    return response;
  }
  if (caller_gone && caller_gone()) {
    absl::MutexLock lock(&mutex_);
    ++abandoned_;
    return absl::CancelledError("gone");
  }
  v1::TrainingJob stored = job;
  stored.set_uid("uid-" + job.name());
  stored.mutable_status()->set_state(v1::JOB_STATE_QUEUED);
  TESSERA_ASSIGN_OR_RETURN(scheduler::JobRecord record, store_->Create(stored, request_id));
  *response.mutable_training_job() = record.job;
  return response;
}

absl::StatusOr<v1::TrainingJob> FakeController::Cancel(const scheduler::JobKey& key) {
  return SetState(key, v1::JOB_STATE_CANCELLED);
}

absl::StatusOr<v1::TrainingJob> FakeController::Suspend(const scheduler::JobKey& key) {
  return SetState(key, v1::JOB_STATE_SUSPENDED);
}

absl::StatusOr<v1::TrainingJob> FakeController::Resume(const scheduler::JobKey& key) {
  return SetState(key, v1::JOB_STATE_QUEUED);
}

absl::StatusOr<v1::TrainingJob> FakeController::Update(
    const scheduler::JobKey& key, const std::string& etag,
    const std::function<void(v1::TrainingJobSpec*)>& change) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobRecord record, store_->Get(key));
  if (!etag.empty() && etag != record.job.etag()) return absl::AbortedError("was changed");
  return Change(key, [&](v1::TrainingJob* job) { change(job->mutable_spec()); });
}

absl::StatusOr<v1::TrainingJob> FakeController::Resize(const scheduler::JobKey& key, const std::string& etag,
                                                       int workers) {
  return Update(key, etag, [&](v1::TrainingJobSpec* spec) { spec->mutable_workers()->set_count(workers); });
}

absl::StatusOr<v1::TrainingJob> FakeController::RecomputeBudgets(const scheduler::JobKey& key,
                                                                 const scheduler::BudgetRequest& request) {
  return Update(key, request.etag, [&](v1::TrainingJobSpec* spec) {
    for (const v1::DensityLimit& limit : request.layer_limits)
      *spec->mutable_dropping()->add_layer_limits() = limit;
  });
}

absl::Status FakeController::Delete(const scheduler::JobKey& key, const std::string& etag) {
  TESSERA_RETURN_IF_ERROR(store_->Get(key).status());
  TESSERA_RETURN_IF_ERROR(store_->Delete(key, etag));
  v1::WatchTrainingJobResponse update;
  update.set_revision(1000000);
  update.set_deleted(true);
  Publish(key, std::make_shared<const scheduler::WatchUpdate>(std::move(update)));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FakeController::Watch(const scheduler::JobKey& key, int64_t from_revision,
                                              WatchCallback callback) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobRecord record, store_->Get(key));
  if (from_revision > record.revision) return absl::OutOfRangeError("revision is not kept");
  absl::MutexLock lock(&mutex_);
  if (from_revision != record.revision) callback(UpdateOf(record));
  watches_[++last_watch_] = {key, std::move(callback)};
  return last_watch_;
}

void FakeController::Unwatch(int64_t watch) {
  absl::MutexLock lock(&mutex_);
  watches_.erase(watch);
}

absl::StatusOr<std::string> FakeController::WorkerToken(const std::string& job_uid, int epoch) {
  if (job_uid != "uid") return absl::NotFoundError("no group");
  return absl::StrCat("worker-token-of-epoch-", epoch);
}

absl::Status FakeController::WorkerConnected(const v1::Hello& hello,
                                             std::shared_ptr<scheduler::WorkerSink> sink) {
  if (hello.identity().rank() > 7) return absl::FailedPreconditionError("no such rank");
  absl::MutexLock lock(&mutex_);
  v1::WorkerDown all, own;
  all.mutable_assignment()->set_job_name("shared");
  own.mutable_assignment()->set_rank(hello.identity().rank());
  scheduler::DownMessage assignment = scheduler::ToAll(all);
  assignment.own = own.SerializeAsString();
  sinks_.push_back(std::move(sink));
  sinks_.back()->Send(assignment);
  return absl::OkStatus();
}

void FakeController::WorkerMessage(const v1::WorkerIdentity& who, const v1::WorkerUp& message) {
  absl::MutexLock lock(&mutex_);
  messages_.push_back(absl::StrCat(who.rank(), ":", message.progress().step()));
}

void FakeController::WorkerDisconnected(const v1::WorkerIdentity& /*who*/,
                                        const std::shared_ptr<scheduler::WorkerSink>& sink) {
  absl::MutexLock lock(&mutex_);
  std::erase(sinks_, sink);
  ++disconnects_;
}

absl::StatusOr<v1::StoreResponse> FakeController::Store(const v1::StoreRequest& request,
                                                        absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  if (request.operation() == v1::StoreRequest::OPERATION_SET) {
    values_[request.keys(0)] = request.value();
    return v1::StoreResponse();
  }
  const auto there = [&]()
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return values_.count(request.keys(0)) > 0; };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&there), deadline)) {
    return absl::DeadlineExceededError("no key");
  }
  v1::StoreResponse response;
  response.add_values(values_[request.keys(0)]);
  return response;
}

absl::StatusOr<v1::TrainingJob> FakeController::SetState(const scheduler::JobKey& key, v1::JobState state) {
  return Change(key, [state](v1::TrainingJob* job) { job->mutable_status()->set_state(state); });
}

absl::StatusOr<v1::TrainingJob> FakeController::Change(const scheduler::JobKey& key,
                                                       const std::function<void(v1::TrainingJob*)>& edit) {
  TESSERA_ASSIGN_OR_RETURN(scheduler::JobRecord record, store_->Get(key));
  edit(&record.job);
  TESSERA_ASSIGN_OR_RETURN(record, store_->Update(record));
  Publish(key, UpdateOf(record));
  return record.job;
}

bool FakeController::Await(const std::function<bool(FakeController&)>& wanted)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  absl::MutexLock lock(&mutex_);
  const auto holds = [&] { return wanted(*this); };
  return mutex_.AwaitWithTimeout(absl::Condition(&holds), kPatience);
}

void FakeController::SendToAll(const v1::WorkerDown& message) {
  absl::MutexLock lock(&mutex_);
  for (const auto& sink : sinks_) sink->Send(scheduler::ToAll(message));
}

void FakeController::Publish(const scheduler::JobKey& key, const scheduler::SharedUpdate& update) {
  absl::MutexLock lock(&mutex_);
  for (auto& [id, watch] : watches_) {
    if (watch.first == key) watch.second(update);
  }
}

}  // namespace tessera::services

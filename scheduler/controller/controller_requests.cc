// What clients ask for.
#include <sys/random.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/violation.h"
#include "scheduler/controller/controller_loop.h"
#include "scheduler/controller/plan_maker.h"
#include "scheduler/controller/proto_time.h"

namespace tessera::scheduler {
namespace {

std::string NewUid() {
  std::string bytes(16, '\0');
  TESSERA_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  bytes[6] = static_cast<char>((bytes[6] & 0x0f) | 0x40);  // RFC 9562, version 4
  bytes[8] = static_cast<char>((bytes[8] & 0x3f) | 0x80);
  const std::string hex = absl::BytesToHexString(bytes);
  return absl::StrCat(hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-", hex.substr(16, 4),
                      "-", hex.substr(20));
}

absl::Status HasEnded(const v1::TrainingJob& job, const char* verb) {
  return absl::FailedPreconditionError(
      absl::StrCat("training job '", job.name(), "' has ended as ",
                   std::string(job::JobStateName(static_cast<job::JobState>(job.status().state()))),
                   " and can't be ", verb));
}

// Of a job that starts from another one's checkpoint: that it is there, whole, of this model, and not at the
// end.
absl::Status CheckResumeFrom(const v1::TrainingJobSpec& spec, const v1::Plan& plan) {
  const std::string& path = spec.checkpoint().resume_from();
  if (path.empty()) return absl::OkStatus();
  const auto wrong = [&](const std::string& message, const std::string& remedy) {
    return spec::MakeInvalid({{.path = "spec.checkpoint.resumeFrom",
                               .value = absl::StrCat("\"", path, "\""),
                               .message = message,
                               .remedy = remedy}});
  };
  std::ifstream file(path + "/manifest.json");
  const auto manifest = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("step") || !manifest.contains("shape_fingerprint")) {
    return wrong("is no complete checkpoint", "name a step-... folder that has a manifest.json");
  }
  const std::string shape = absl::StrFormat("%016x", plan.inputs().shape_fingerprint());
  if (manifest["shape_fingerprint"] != shape) {
    return wrong("is of another model", "use the model of the job that wrote it");
  }
  const int64_t step = manifest["step"].is_number_integer() ? manifest["step"].get<int64_t>() : 0;
  if (step < plan.total_steps()) return absl::OkStatus();
  return wrong(absl::StrCat("is at step ", step, ", and this job has ", plan.total_steps(), " steps"),
               "make spec.schedule longer");
}

// An elastic job's bounds stay, but for the one that is crossed; others' are the count.
void SetWorkers(v1::WorkersSpec* spec, int workers) {
  const bool elastic = IsElastic(*spec);
  spec->set_count(workers);
  if (spec->has_min()) spec->set_min(elastic ? std::min(spec->min(), workers) : workers);
  if (spec->has_max()) spec->set_max(elastic ? std::max(spec->max(), workers) : workers);
}

v1::WatchTrainingJobResponse UpdateOf(const JobRecord& record) {
  v1::WatchTrainingJobResponse update;
  update.set_revision(record.revision);
  *update.mutable_training_job() = record.job;
  return update;
}

}  // namespace

absl::StatusOr<v1::CreateTrainingJobResponse> ControllerLoop::Create(
    const v1::TrainingJob& job, const std::string& request_id, bool validate_only,
    const std::function<bool()>& caller_gone) {
  const JobKey key{job.namespace_(), job.name()};
  if (request_id.empty() && store_->Get(key).ok()) {  // before the model is described for nothing
    return absl::AlreadyExistsError(
        absl::StrCat("a training job '", key.name, "' exists already in namespace '", key.ns, "'"));
  }
  if (!validate_only) {
    TESSERA_ASSIGN_OR_RETURN(const std::optional<JobRecord> first, store_->FindRequest(job, request_id));
    if (first.has_value()) {
      v1::CreateTrainingJobResponse answer;
      *answer.mutable_training_job() = first->job;
      return answer;
    }
  }
  const absl::Time began = Now();
  TESSERA_ASSIGN_OR_RETURN(v1::Plan plan, MakeElasticPlan(job.spec(), *describer_, options_, began));
  if (metrics_ != nullptr) metrics_->PlanMade(Now() - began);
  if (!validate_only) TESSERA_RETURN_IF_ERROR(CheckFits(plan));
  TESSERA_RETURN_IF_ERROR(CheckResumeFrom(job.spec(), plan));

  LiveJob live;
  live.record.job = job;
  live.plan = plan;
  live.status().Clear();
  live.status().set_state(v1::JOB_STATE_QUEUED);
  live.status().set_reason("Queued");
  live.status().set_message("waits for capacity");
  live.status().set_plan_generation(plan.generation());
  live.status().set_total_steps(plan.total_steps());
  if (job.spec().subnetwork().coverage_auto()) {
    live.status().add_notices(
        absl::StrCat("subnetwork.coverage_auto chose coverage ", plan.inputs().coverage()));
  }
  if (const std::string fewer = FewerWorkers(job.spec(), plan); !fewer.empty()) {
    live.notes.workers = plan.workers_size();
    live.status().add_notices(fewer);
  }
  ResetWorkers(live);
  v1::CreateTrainingJobResponse response;
  if (validate_only) {
    *response.mutable_training_job() = live.record.job;
    *response.mutable_plan() = std::move(plan);
    return response;
  }

  if (caller_gone && caller_gone()) {
    return absl::CancelledError("the caller has gone; the job was not stored");
  }
  absl::MutexLock lock(&mutex_);
  const absl::Time now = Now();
  const std::string uid = NewUid();
  live.record.job.set_uid(uid);
  SetTime(now, live.record.job.mutable_create_time());
  live.status().set_run_directory(RunDirectory(uid));
  live.notes.queued_at = now;
  live.claim = ClaimOf(plan, job.spec(), options_);
  live.notes.planned = true;
  TESSERA_ASSIGN_OR_RETURN(const JobRecord record,
                           store_->Create(live.record.job, request_id, Encode(live.notes), &plan));
  *response.mutable_training_job() = record.job;
  if (record.job.uid() != uid) return response;  // the first answer to a repeated request
  live.record = record;
  std::error_code ignored;
  std::filesystem::create_directories(RunDirectory(uid), ignored);
  std::filesystem::permissions(RunDirectory(uid), std::filesystem::perms::owner_all, ignored);
  Event(
      live, false, "Submitted",
      absl::StrCat(plan.workers_size(), " workers, ", plan.total_steps(), " steps, plan ", plan.generation()),
      now);
  if (metrics_ != nullptr) metrics_->JobStateChanged("", "QUEUED");
  live.changed = true;
  *response.mutable_training_job() = live.record.job;
  jobs_.Add(std::move(live));
  Wake();
  return response;
}

absl::StatusOr<v1::TrainingJob> ControllerLoop::Cancel(const JobKey& key) {
  absl::MutexLock lock(&mutex_);
  LiveJob* live = jobs_.Find(key);
  if (live == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(const JobRecord record, store_->Get(key));
    if (record.job.status().state() == v1::JOB_STATE_CANCELLED) return record.job;
    return HasEnded(record.job, "cancelled");
  }
  if (live->status().cancel_requested()) return live->record.job;
  live->status().set_cancel_requested(true);
  live->Touch();
  if (absl::Status status = Write(*live, Now()); !status.ok()) {
    live->status().set_cancel_requested(false);
    return status;
  }
  Event(*live, false, "CancelRequested", "cancellation was requested", Now());
  Wake();
  return live->record.job;
}

absl::StatusOr<v1::TrainingJob> ControllerLoop::SetSuspend(const JobKey& key, bool suspend) {
  absl::MutexLock lock(&mutex_);
  LiveJob* live = jobs_.Find(key);
  if (live == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(const JobRecord record, store_->Get(key));
    return HasEnded(record.job, suspend ? "suspended" : "resumed");
  }
  if (live->status().cancel_requested()) {
    return absl::FailedPreconditionError(absl::StrCat("training job '", key.name, "' is being cancelled"));
  }
  v1::TrainingJobSpec& spec = *live->record.job.mutable_spec();
  if (spec.suspend() == suspend) return live->record.job;
  spec.set_suspend(suspend);
  live->Touch();
  if (absl::Status status = Write(*live, Now()); !status.ok()) {
    spec.set_suspend(!suspend);
    return status;
  }
  Event(*live, false, suspend ? "SuspendRequested" : "ResumeRequested",
        suspend ? "suspension was requested" : "resumption was requested", Now());
  Wake();
  return live->record.job;
}

absl::StatusOr<v1::TrainingJob> ControllerLoop::Suspend(const JobKey& key) { return SetSuspend(key, true); }
absl::StatusOr<v1::TrainingJob> ControllerLoop::Resume(const JobKey& key) { return SetSuspend(key, false); }

absl::StatusOr<LiveJob*> ControllerLoop::FindChangeable(const JobKey& key, const std::string& etag,
                                                        const char* verb) {
  LiveJob* live = jobs_.Find(key);
  if (live == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(const JobRecord record, store_->Get(key));
    return HasEnded(record.job, verb);
  }
  if (!etag.empty() && etag != live->record.job.etag()) {
    return absl::AbortedError(absl::StrCat("training job '", key.name, "' was changed since it was read"));
  }
  if (live->status().cancel_requested()) {
    return absl::FailedPreconditionError(absl::StrCat("training job '", key.name, "' is being cancelled"));
  }
  return live;
}

absl::StatusOr<v1::TrainingJob> ControllerLoop::Update(
    const JobKey& key, const std::string& etag, const std::function<void(v1::TrainingJobSpec*)>& change) {
  absl::MutexLock lock(&mutex_);
  TESSERA_ASSIGN_OR_RETURN(LiveJob * live, FindChangeable(key, etag, "changed"));
  const v1::TrainingJobSpec before = live->record.job.spec();
  change(live->record.job.mutable_spec());
  live->Touch();
  if (absl::Status status = Write(*live, Now()); !status.ok()) {
    *live->record.job.mutable_spec() = before;
    return status;
  }
  Event(*live, false, "Updated", "the job was changed by a request", Now());
  Wake();
  return live->record.job;
}

absl::StatusOr<v1::TrainingJob> ControllerLoop::Resize(const JobKey& key, const std::string& etag,
                                                       int workers) {
  v1::TrainingJob job;
  {
    absl::MutexLock lock(&mutex_);
    TESSERA_ASSIGN_OR_RETURN(const LiveJob* live, FindChangeable(key, etag, "resized"));
    job = live->record.job;
    if (live->worker_count() == workers && job.spec().workers().count() == workers && !live->changes_size())
      return job;
  }
  SetWorkers(job.mutable_spec()->mutable_workers(), workers);
  TESSERA_ASSIGN_OR_RETURN(const v1::Plan plan, MakeJobPlan(job.spec(), *describer_, options_, Now()));
  TESSERA_RETURN_IF_ERROR(CheckFits(plan));
  if (plan.total_steps() != job.status().total_steps()) {
    return absl::FailedPreconditionError(
        absl::StrCat("with ", workers, " workers the run would have ", plan.total_steps(),
                     " steps instead of ", job.status().total_steps(),
                     "; suspend it and submit another job that has spec.checkpoint.resumeFrom"));
  }
  absl::MutexLock lock(&mutex_);
  TESSERA_ASSIGN_OR_RETURN(LiveJob * live, FindChangeable(key, "", "resized"));
  if (live->record.job.uid() != job.uid()) return absl::AbortedError("the job was replaced by another one");
  const int before = live->notes.resize_to;
  live->notes.resize_to = workers;
  live->Touch();
  if (absl::Status status = Write(*live, Now()); !status.ok()) {
    live->notes.resize_to = before;
    return status;
  }
  Event(*live, false, "ResizeRequested",
        absl::StrCat("from ", live->worker_count(), " to ", workers, " workers"), Now());
  Wake();
  return live->record.job;
}

// Once no worker runs: the job is planned again before it is admitted.
void ControllerLoop::ApplyResize(LiveJob& live, absl::Time now) {
  if (live.state() != job::JobState::kQueued && live.state() != job::JobState::kSuspended) return;
  if (live.notes.resize_to > 0) {
    SetWorkers(live.record.job.mutable_spec()->mutable_workers(), live.notes.resize_to);
    live.notes.workers = 0;
  } else {
    live.notes.workers = live.notes.grow_to;
  }
  live.notes.resize_to = live.notes.grow_to = 0;
  live.notes.planned = false;
  live.plan_error.clear();
  ResetWorkers(live);
  live.Touch();
  live.unsaved = !Write(live, now).ok();
}

absl::Status ControllerLoop::Delete(const JobKey& key, const std::string& etag) {
  absl::MutexLock lock(&mutex_);
  LiveJob* live = jobs_.Find(key);
  if (live == nullptr) {
    TESSERA_ASSIGN_OR_RETURN(const JobRecord record, store_->Get(key));
    return Forget(record.job, record.revision, etag);
  }
  if (!etag.empty() && etag != live->record.job.etag()) {
    return absl::AbortedError(absl::StrCat("training job '", key.name, "' was changed since it was read"));
  }
  live->notes.delete_when_done = true;
  live->status().set_cancel_requested(true);
  live->Touch();
  Wake();
  return Write(*live, Now());
}

absl::StatusOr<int64_t> ControllerLoop::Watch(const JobKey& key, int64_t from_revision,
                                              WatchCallback callback) {
  absl::MutexLock lock(&mutex_);
  v1::WatchTrainingJobResponse first;
  if (const LiveJob* live = jobs_.Find(key); live != nullptr) {
    first = UpdateOf(live->record);
  } else {
    TESSERA_ASSIGN_OR_RETURN(const JobRecord record, store_->Get(key));
    first = UpdateOf(record);
  }
  if (from_revision > first.revision()) {
    return absl::OutOfRangeError(absl::StrCat("revision ", from_revision,
                                              " is not kept here, the newest of job '", key.name, "' is ",
                                              first.revision(), "; watch again without one"));
  }
  const bool known = from_revision != 0 && from_revision == first.revision();
  const int64_t watch = watches_.Add(
      key, known ? nullptr : std::make_shared<const WatchUpdate>(std::move(first)), std::move(callback));
  Wake();
  return watch;
}

void ControllerLoop::Unwatch(int64_t watch) { watches_.Remove(watch); }

}  // namespace tessera::scheduler

// Decisions into records: the only place where a job's state changes.
#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/controller/controller_loop.h"
#include "scheduler/controller/planning_evidence.h"
#include "scheduler/controller/proto_time.h"
#include "scheduler/controller/run_directory.h"
#include "scheduler/controller/worker_tokens.h"

namespace tessera::scheduler {

using job::Action;
using job::JobState;

namespace {

constexpr double kUsableAfterOutOfMemory = 0.9;  // of what the worker was planned to need
constexpr absl::Duration kDeletionRetry = absl::Minutes(1);

}  // namespace

void ControllerLoop::Apply(LiveJob& live, const job::Decision& decision, absl::Time now,
                           std::vector<Effect>& effects) {
  v1::TrainingJobStatus& status = live.status();
  const JobState from = live.state();
  const std::string processes = live.record.processes;  // before a release forgets them
  bool material = decision.state != from || decision.epoch != status.epoch() || decision.stop_started;

  if (!decision.reason.empty() &&
      (status.reason() != decision.reason || status.message() != decision.message)) {
    material = true;
    status.set_reason(decision.reason);
  }
  if (!decision.message.empty()) status.set_message(decision.message);
  if (decision.failure.has_value()) {
    live.plan_error.clear();
    CountFailure(live, *decision.failure, decision);
    material = true;
  }
  if (decision.stop_started) live.notes.stopping_since = now;
  const bool restarts = decision.epoch > status.epoch() || decision.state == JobState::kQueued;
  if (from == JobState::kDegraded && restarts) status.set_restarts(status.restarts() + 1);
  if (decision.epoch > status.epoch()) BeginEpoch(live, decision.epoch);
  for (const Action& action : decision.actions) {
    if (action.kind == Action::Kind::kScheduleRetry) {
      live.notes.retry_at = action.at;
      if (action.at != absl::InfiniteFuture()) SetTime(action.at, status.mutable_retry_time());
    }
    if (action.kind == Action::Kind::kRelease) Release(live);
    if (action.kind == Action::Kind::kAskStop) AskStop(live);
    if (action.kind == Action::Kind::kTerminate) live.terminated_at = now;
    effects.push_back({live.record.job.uid(), action, processes});
  }
  if (decision.state != from) EnterState(live, decision.state, now);
  if (!material) return;
  live.Touch();
  Wake();
  live.unsaved = !Write(live, now).ok();
  // What was not stored is not acted upon: after a restart it would not have been decided.
  if (live.unsaved) effects.erase(effects.end() - static_cast<long>(decision.actions.size()), effects.end());
  if (decision.state != from || decision.stop_started) {
    const bool warning = decision.state == JobState::kDegraded || decision.state == JobState::kFailed;
    Event(live, warning, status.reason(), status.message(), now);
  }
}

void ControllerLoop::CountFailure(LiveJob& live, const job::Failure& failure, const job::Decision& decision) {
  ++live.notes.failures[static_cast<size_t>(failure.failure_class)];
  bool retried = false;
  for (const Action& action : decision.actions) {
    retried |= action.kind == Action::Kind::kScheduleRetry && action.at != absl::InfiniteFuture();
  }
  live.notes.failure = retried ? failure.message : decision.message;
  if (retried && failure.failure_class == job::FailureClass::kOutOfMemory)
    NoteMemoryEvidence(live, failure.rank);
  if (failure.rank >= 0 && failure.rank < live.status().workers_size()) {
    live.status().mutable_workers(failure.rank)->set_last_error(failure.message);
  }
  if (metrics_ != nullptr) metrics_->WorkerFailed(std::string(job::FailureClassName(failure.failure_class)));
  spdlog::warn("event=group_failed job={} epoch={} rank={} class={} message=\"{}\"", live.record.job.name(),
               live.status().epoch(), failure.rank, std::string(job::FailureClassName(failure.failure_class)),
               failure.message);
}

void ControllerLoop::NoteMemoryEvidence(LiveJob& live, int rank) {
  const v1::TrainingJobSpec& spec = live.record.job.spec();
  if (!spec.subnetwork().coverage_auto() &&
      spec.activation_checkpointing() != v1::ACTIVATION_CHECKPOINTING_AUTO) {
    return;  // nothing that another plan could choose
  }
  if (rank < 0 || rank >= live.plan.workers_size()) return;
  const int64_t within = live.plan.workers(rank).memory().peak();
  live.notes.usable_bytes = static_cast<int64_t>(static_cast<double>(within) * kUsableAfterOutOfMemory);
  live.notes.usable_rank = rank;
  live.notes.planned = false;
}

void ControllerLoop::NotePeaks(LiveJob& live, absl::Time now) {
  const double ratio = PeakOverPlan(live.status());
  if (ratio == 0) return;
  const std::string message = absl::StrFormat(
      "a worker's peak was %.1f %% above its plan; the next job of this model is planned with as much less "
      "memory",
      100 * (ratio - 1));
  live.status().add_notices(message);
  Event(live, true, "PeakAbovePlan", message, now);
  if (!RecordPeakOverPlan(options_.state_directory, live.plan.inputs().shape_fingerprint(), ratio))
    spdlog::warn("event=evidence_not_kept job={}", live.record.job.name());
}

void ControllerLoop::BeginEpoch(LiveJob& live, int epoch) {
  Release(live);
  live.status().set_epoch(epoch);
  live.status().clear_retry_time();
  live.notes.retry_at = absl::InfinitePast();
  live.notes.stopping_since = absl::InfiniteFuture();
  live.notes.outcomes.clear();
  ResetWorkers(live);
  rendezvous_.Open(live.record.job.uid(), epoch);
}

void ControllerLoop::Release(LiveJob& live) {
  for (LiveWorker& worker : live.workers) {
    if (worker.sink == nullptr) continue;
    outbox_.push_back(
        [sink = std::move(worker.sink)] { sink->Close(absl::AbortedError("this epoch is over")); });
    worker.sink = nullptr;
    worker.seen.connected = false;
  }
  live.record.processes.clear();
  rendezvous_.Drop(live.record.job.uid());
}

void ControllerLoop::EnterState(LiveJob& live, JobState to, absl::Time now) {
  v1::TrainingJobStatus& status = live.status();
  const JobState from = live.state();
  status.set_state(static_cast<v1::JobState>(to));
  if (to == JobState::kQueued) live.notes.queued_at = now;
  if (to == JobState::kSuspended) live.notes.stopping_since = absl::InfiniteFuture();
  if (job::IsTerminal(to)) {
    SetTime(now, status.mutable_end_time());
    status.clear_eta();
    status.clear_retry_time();
    NotePeaks(live, now);
  }
  const bool stepped = to == JobState::kWarmup || to == JobState::kRunning;
  const bool first_step = stepped && !live.notes.first_step_counted;
  if (first_step) live.notes.first_step_counted = true;
  spdlog::info("event=state_changed job={}/{} from={} to={} reason={} message=\"{}\"", live.key().ns,
               live.key().name, std::string(job::JobStateName(from)), std::string(job::JobStateName(to)),
               status.reason(), status.message());
  if (metrics_ == nullptr) return;
  metrics_->JobStateChanged(std::string(job::JobStateName(from)), std::string(job::JobStateName(to)));
  if (to == JobState::kPlanned && from == JobState::kQueued) metrics_->QueueWait(now - live.notes.queued_at);
  if (first_step) metrics_->TimeToFirstStep(now - FromProto(live.record.job.create_time()));
}

void ControllerLoop::AskStop(LiveJob& live) {
  v1::WorkerDown down;
  down.mutable_stop()->set_checkpoint(true);
  down.mutable_stop()->set_reason(live.status().cancel_requested() ? "cancelled"
                                  : live.changes_size()            ? "resized"
                                                                   : "suspended");
  const DownMessage message = ToAll(down);
  for (const LiveWorker& worker : live.workers) {
    if (worker.sink != nullptr) outbox_.push_back([sink = worker.sink, message] { sink->Send(message); });
  }
}

void ControllerLoop::Retire(const std::string& uid, absl::Time now) {
  const LiveJob live = jobs_.Take(uid);
  for (int epoch = 1; epoch <= live.status().epoch(); ++epoch) RemoveWorkerToken(RunDirectory(uid), epoch);
  v1::WatchTrainingJobResponse update;
  update.set_revision(live.record.revision);
  *update.mutable_training_job() = live.record.job;
  watches_.Publish(live.key(), std::move(update));
  if (!live.notes.delete_when_done) {
    ScheduleExpiry(live.record.job);
    return;
  }
  ForgetOrRetry(live.record.job, live.record.revision, "", now);
}

void ControllerLoop::ForgetOrRetry(const v1::TrainingJob& job, int64_t revision, const std::string& etag,
                                   absl::Time now) {
  if (Forget(job, revision, etag).ok()) return;  // logged
  expiries_.emplace(now + kDeletionRetry, std::make_pair(JobKey{job.namespace_(), job.name()}, job.uid()));
}

absl::Status ControllerLoop::Forget(const v1::TrainingJob& job, int64_t revision, const std::string& etag) {
  const JobKey key{job.namespace_(), job.name()};
  const std::string run_directory = RunDirectory(job.uid());
  absl::Status status = MarkDeleted(run_directory);
  if (status.ok()) {
    status = store_->Delete(key, etag);
    if (!status.ok()) UnmarkDeleted(run_directory);
  }
  if (absl::IsAborted(status)) return status;  // the caller's etag is old
  if (!status.ok()) {
    spdlog::error("event=delete_failed job={} error=\"{}\"", job.name(), status.ToString());
    return status;
  }
  trash_.push_back(run_directory);
  v1::WatchTrainingJobResponse update;
  update.set_revision(revision);
  *update.mutable_training_job() = job;
  update.set_deleted(true);
  watches_.Publish(key, std::move(update));
  Wake();
  return absl::OkStatus();
}

absl::Status ControllerLoop::Write(LiveJob& live, absl::Time now) {
  live.record.notes = Encode(live.notes);
  NoteMemoryPrediction(live);
  absl::StatusOr<JobRecord> written = store_->Update(live.record);
  if (absl::IsAborted(written.status())) {
    // Somebody else wrote; of a live job the controller's word counts.
    if (auto stored = store_->Get(live.key()); stored.ok() && stored->job.uid() == live.record.job.uid()) {
      live.record.job.set_etag(stored->job.etag());
      written = store_->Update(live.record);
    }
  }
  live.written_at = now;
  if (!written.ok()) {
    spdlog::error("event=store_failed job={} error=\"{}\"", live.record.job.name(),
                  written.status().ToString());
    return written.status();
  }
  live.record.job.set_etag(written->job.etag());
  live.record.revision = written->revision;
  live.dirty = live.unsaved = false;
  return absl::OkStatus();
}

void ControllerLoop::Event(const LiveJob& live, bool warning, const std::string& reason,
                           const std::string& message, absl::Time now) {
  v1::Event event;
  SetTime(now, event.mutable_time());
  event.set_type(warning ? "Warning" : "Normal");
  event.set_reason(reason);
  event.set_message(message);
  if (absl::Status status = store_->AddEvent(live.key(), event); !status.ok()) {
    spdlog::error("event=event_lost job={} reason={} error=\"{}\"", live.record.job.name(), reason,
                  status.ToString());
  }
}

void ControllerLoop::ScheduleExpiry(const v1::TrainingJob& job) {
  if (!job.spec().has_ttl_after_finished()) return;
  expiries_.emplace(FromProto(job.status().end_time()) + FromProto(job.spec().ttl_after_finished()),
                    std::make_pair(JobKey{job.namespace_(), job.name()}, job.uid()));
}

std::string ControllerLoop::RunDirectory(const std::string& uid) const {
  return absl::StrCat(options_.state_directory, "/jobs/", uid);
}

}  // namespace tessera::scheduler

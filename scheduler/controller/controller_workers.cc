// The worker channel.
#include <spdlog/spdlog.h>

#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "scheduler/controller/checkpoint_finder.h"
#include "scheduler/controller/controller_loop.h"
#include "scheduler/controller/worker_tokens.h"

namespace tessera::scheduler {
namespace {

bool IsUid(const std::string& uid) {
  for (const char c : uid) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c)) && c != '-') return false;
  }
  return !uid.empty();
}

}  // namespace

absl::StatusOr<std::string> ControllerLoop::WorkerToken(const std::string& job_uid, int epoch) {
  if (!IsUid(job_uid)) return absl::NotFoundError("no such job");  // it becomes part of a path
  return ReadWorkerToken(RunDirectory(job_uid), epoch);
}

absl::StatusOr<LiveJob*> ControllerLoop::FindFor(const v1::WorkerIdentity& who) {
  LiveJob* const found = jobs_.Find(who.job_uid());
  if (found == nullptr) return absl::NotFoundError("the job has ended or does not exist");
  LiveJob& live = *found;
  if (who.epoch() != live.status().epoch()) {
    return absl::AbortedError(
        absl::StrCat("epoch ", who.epoch(), " is fenced; the job is at epoch ", live.status().epoch()));
  }
  if (live.record.processes.empty() && !job::HoldsCapacity(live.state())) {
    return absl::AbortedError(absl::StrCat("epoch ", who.epoch(), " is over"));
  }
  if (who.rank() < 0 || who.rank() >= static_cast<int>(live.workers.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", who.rank(), " is not one of 0 to ", live.workers.size() - 1));
  }
  return &live;
}

absl::Status ControllerLoop::WorkerConnected(const v1::Hello& hello, std::shared_ptr<WorkerSink> sink) {
  absl::MutexLock lock(&mutex_);
  TESSERA_ASSIGN_OR_RETURN(LiveJob * live, FindFor(hello.identity()));
  const int rank = hello.identity().rank();
  LiveWorker& worker = live->workers[static_cast<size_t>(rank)];
  if (worker.sink != nullptr && worker.sink != sink) {
    // The worker is back before its broken stream was noticed.
    outbox_.push_back(
        [old = std::move(worker.sink)] { old->Close(absl::UnavailableError("replaced by a newer stream")); });
  }
  spdlog::info("event=worker_connected job={} epoch={} rank={} pid={} step={}", live->record.job.name(),
               hello.identity().epoch(), rank, hello.identity().pid(), hello.step());
  NoteHello(*live, hello, std::move(sink), Now());
  // One that trains already was assigned by the scheduler's predecessor.
  if (hello.step() == 0 && worker.seen.outcome == job::Outcome::kNone) SendAssignment(*live, rank);
  // A newer plan may have been made while it was away; one that it holds it acknowledges again.
  if (hello.step() > 0 && Enforced(live->plan)) SendPlan(*live, rank, PlanMessage(*live));
  if (live->notes.stopping_since != absl::InfiniteFuture()) {
    v1::WorkerDown down;
    down.mutable_stop()->set_checkpoint(true);
    down.mutable_stop()->set_reason("the job is being stopped");
    outbox_.push_back([to = worker.sink, message = ToAll(down)] { to->Send(message); });
  }
  Wake();
  return absl::OkStatus();
}

void ControllerLoop::SendAssignment(LiveJob& live, int rank) {
  const v1::TrainingJob& job = live.record.job;
  const std::string run_directory = RunDirectory(job.uid());
  const std::string checkpoints = CheckpointDirectory(job, run_directory);
  if (!live.resume_decided) {
    // A folder seen here is the truth; the reported path counts where checkpoints are not.
    const auto found = NewestCheckpoint(checkpoints);
    live.resume_from = found.has_value()                    ? found->path
                       : !job.status().checkpoint().empty() ? job.status().checkpoint()
                                                            : job.spec().checkpoint().resume_from();
    live.resume_decided = true;
  }
  // The plan stands for itself: a generation is never changed.
  const std::string made_from = absl::StrCat(job.status().epoch(), " ", live.plan.generation(), " ",
                                             live.resume_from, "\n", job.spec().SerializeAsString());
  if (live.assignment.made_from != made_from) {
    v1::WorkerDown down;
    v1::Assignment& assignment = *down.mutable_assignment();
    assignment.set_job_name(job.name());
    assignment.set_namespace_(job.namespace_());
    assignment.set_job_uid(job.uid());
    assignment.set_epoch(job.status().epoch());
    assignment.set_world_size(static_cast<int32_t>(live.workers.size()));
    *assignment.mutable_spec() = live.group_spec();
    *assignment.mutable_plan() = live.plan;
    if (live.plan.activation_checkpointing() != v1::ACTIVATION_CHECKPOINTING_UNSPECIFIED) {
      assignment.mutable_spec()->set_activation_checkpointing(live.plan.activation_checkpointing());
    }
    assignment.mutable_plan()->set_epoch(job.status().epoch());
    assignment.set_run_directory(run_directory);
    assignment.set_checkpoint_directory(checkpoints);
    assignment.set_resume_from(live.resume_from);
    live.assignment = {made_from, ToAll(down)};
  }
  v1::WorkerDown own;
  own.mutable_assignment()->set_rank(rank);
  outbox_.push_back([sink = live.workers[static_cast<size_t>(rank)].sink,
                     message = DownMessage{live.assignment.message.shared, own.SerializeAsString()}] {
    sink->Send(message);
  });
}

void ControllerLoop::WorkerMessage(const v1::WorkerIdentity& who, const v1::WorkerUp& message) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<LiveJob*> found = FindFor(who);
  if (!found.ok()) return;  // of an epoch that is over
  LiveJob& live = **found;
  const absl::Time now = Now();
  const bool new_checkpoint =
      message.has_checkpoint() && message.checkpoint().path() != live.status().checkpoint();
  if (NoteMessage(live, who.rank(), message, now)) Wake();
  if (message.has_progress()) FollowBudgets(live, who.rank(), message.progress(), now);
  if (message.has_progress() && DoubtsLinks(live)) MeasureLinksAnew(live, now);
  if (message.has_progress()) {
    if (const std::string missed = MissedCheckpoints(live); !missed.empty()) {
      live.status().add_notices(missed);
      Event(live, true, "CheckpointsMissed", missed, now);
    }
  }
  if (new_checkpoint) {
    Event(live, false, "CheckpointWritten",
          absl::StrCat("step ", message.checkpoint().step(), ": ", message.checkpoint().path()), now);
  }
  if (!message.has_finished()) return;
  Wake();
  // Closing the stream confirms the report, so it is stored first. If that fails the
  // worker says it again on another stream.
  const absl::Status stored = Write(live, now);
  LiveWorker& worker = live.workers[static_cast<size_t>(who.rank())];
  if (worker.sink == nullptr) return;
  outbox_.push_back([sink = std::move(worker.sink), stored] {
    sink->Close(stored.ok() ? absl::OkStatus() : absl::UnavailableError("the report could not be stored"));
  });
  worker.sink = nullptr;
  worker.seen.connected = false;
}

void ControllerLoop::MeasureLinksAnew(LiveJob& live, absl::Time now) {
  std::set<std::string> nodes;
  for (const v1::WorkerPlan& worker : live.plan.workers()) nodes.insert(worker.node());
  if (options_.links_doubted) {
    for (const std::string& node : nodes) options_.links_doubted(node);
  }
  Event(live, true, "LinksDoubted",
        absl::StrFormat(
            "a step takes %.3g s, plan %d said %.3g s: the links that it was made from are measured anew",
            live.status().step_seconds(), live.plan.generation(), live.plan.predicted_step_seconds()),
        now);
}

void ControllerLoop::WorkerDisconnected(const v1::WorkerIdentity& who,
                                        const std::shared_ptr<WorkerSink>& sink) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<LiveJob*> live = FindFor(who);
  if (!live.ok()) return;
  LiveWorker& worker = (*live)->workers[static_cast<size_t>(who.rank())];
  if (worker.sink != sink) return;  // replaced before
  worker.sink = nullptr;
  worker.seen.connected = false;
  Wake();  // its process may be gone
}

absl::StatusOr<v1::StoreResponse> ControllerLoop::Store(const v1::StoreRequest& request,
                                                        absl::Time deadline) {
  return rendezvous_.Apply(request, deadline);
}

}  // namespace tessera::scheduler

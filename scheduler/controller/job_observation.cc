#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "scheduler/controller/live_job.h"
#include "scheduler/controller/proto_time.h"

namespace tessera::scheduler {
namespace {

constexpr char kWaits[] = "waits to start: ";

job::Deadlines DeadlinesOf(const v1::DeadlinesSpec& spec) {
  return {FromProto(spec.queue()),      FromProto(spec.start()), FromProto(spec.rendezvous()),
          FromProto(spec.first_step()), FromProto(spec.step()),  FromProto(spec.checkpoint()),
          FromProto(spec.drain())};
}

// Dense steps before gradient dropping.
int64_t WarmupSteps(const LiveJob& live) { return live.plan.dropping().first_step(); }

}  // namespace

void ResetWorkers(LiveJob& live) {
  const int count = live.worker_count();
  live.workers.assign(static_cast<size_t>(count), {});
  live.launch_error.clear();
  live.launch_error_final = live.resume_decided = false;
  live.launched_at = live.greeted_at = live.met_at = live.first_step_at = live.progress_at =
      live.terminated_at = absl::InfiniteFuture();
  live.smoothed_step = -1;
  live.links_doubted = live.checkpoint_missed = false;
  live.checkpoint_step = -1;
  live.budgets = {};
  live.estimate = {};
  v1::TrainingJobStatus& status = live.status();
  status.clear_workers();
  for (int rank = 0; rank < count; ++rank) {
    live.workers[static_cast<size_t>(rank)].seen.rank = rank;
    v1::WorkerStatus* worker = status.add_workers();
    worker->set_rank(rank);
    if (rank >= live.plan.workers_size()) continue;
    const v1::WorkerPlan& plan = live.plan.workers(rank);
    worker->set_node(plan.node());
    worker->set_memory_predicted_bytes(plan.memory().peak());
    worker->set_coverage(plan.coverage());
    worker->set_batch(plan.batch());
    worker->set_traffic_predicted_bytes_per_step(plan.traffic_bytes_per_step());
  }
}

LiveJob Adopt(JobRecord record, v1::Plan plan, absl::Time now) {
  LiveJob live;
  live.record = std::move(record);
  live.notes = DecodeNotes(live.record.notes);
  live.plan = std::move(plan);
  const v1::TrainingJobStatus before = live.status();
  ResetWorkers(live);
  if (before.workers_size() == static_cast<int>(live.workers.size())) {
    *live.status().mutable_workers() = before.workers();  // what was last known
  }
  if (!live.record.processes.empty()) {
    live.launched_at = now;
    for (LiveWorker& worker : live.workers) {
      job::ObservedWorker& seen = worker.seen;
      seen.running = true;
      // Until it says more: one that trains is not to be terminated for want of anything to save.
      if (live.status().workers(seen.rank).step() > 0) seen.phase = job::Phase::kTraining;
      const auto rank = static_cast<size_t>(seen.rank);
      if (rank >= live.notes.outcomes.size() || live.notes.outcomes[rank] == 0) continue;
      seen.outcome = static_cast<job::Outcome>(live.notes.outcomes[rank]);
      seen.error = live.status().workers(seen.rank).last_error();
      seen.ended_at = now;
    }
  }
  return live;
}

job::JobView ViewOf(const LiveJob& live) {
  const v1::TrainingJobSpec& spec = live.record.job.spec();
  job::JobView view;
  view.state = live.state();
  view.workers = static_cast<int>(live.workers.size());
  view.epoch = live.status().epoch();
  view.planned = live.notes.planned;
  view.cancel_requested = live.status().cancel_requested();
  view.suspend_requested = spec.suspend() || live.changes_size();
  view.warmup_steps = WarmupSteps(live);
  view.retry.limit = {spec.retry().infrastructure(), spec.retry().out_of_memory(), spec.retry().application(),
                      0};
  view.retry.backoff = FromProto(spec.retry().backoff());
  view.deadlines = DeadlinesOf(spec.deadlines());
  view.failures = live.notes.failures;
  view.queued_at = live.notes.queued_at;
  view.retry_at = live.notes.retry_at;
  view.stopping_since = live.notes.stopping_since;
  view.terminated_at = live.terminated_at;
  view.failure = live.notes.failure;
  return view;
}

job::Observed ObservedOf(const LiveJob& live) {
  job::Observed observed;
  observed.launched = !live.record.processes.empty();
  observed.launch_error = live.launch_error;
  observed.launch_error_final = live.launch_error_final;
  observed.plan_error = live.plan_error;
  observed.plan_error_final = live.plan_error_final;
  if (live.node_lost) observed.lost_node = live.silent_node;
  if (observed.launched) {
    for (const LiveWorker& worker : live.workers) observed.workers.push_back(worker.seen);
  }
  observed.launched_at = live.launched_at;
  observed.greeted_at = live.greeted_at;
  observed.met_at = live.met_at;
  observed.first_step_at = live.first_step_at;
  observed.progress_at = live.progress_at;
  return observed;
}

bool NoteProcesses(LiveJob& live, const std::vector<ProcessState>& processes, absl::Time now) {
  bool ended = false;
  for (const ProcessState& process : processes) {
    if (process.rank < 0 || process.rank >= static_cast<int>(live.workers.size())) continue;
    job::ObservedWorker& seen = live.workers[static_cast<size_t>(process.rank)].seen;
    v1::WorkerStatus& worker = *live.status().mutable_workers(process.rank);
    if (worker.pid() != process.pid || worker.pod() != process.pod || worker.node() != process.node) {
      worker.set_pid(process.pid);
      worker.set_node(process.node);
      worker.set_pod(process.pod);
      live.Touch();
    }
    const std::string waits = process.waits.empty() ? "" : absl::StrCat(kWaits, process.waits);
    if (worker.last_error() != waits && (!waits.empty() || absl::StartsWith(worker.last_error(), kWaits))) {
      worker.set_last_error(waits);
      live.Touch();
    }
    seen.halted = process.running && process.halted;
    if (process.running || !seen.running) continue;
    seen.running = false;
    seen.exit_known = process.exit_known;
    seen.exit_code = process.exit_code;
    seen.signal = process.signal;
    seen.ended_at = std::min(seen.ended_at, now);
    const bool clean = seen.outcome == job::Outcome::kCompleted || seen.outcome == job::Outcome::kStopped ||
                       (seen.outcome == job::Outcome::kNone && process.exit_known && process.exit_code == 0);
    worker.set_state(clean ? "Finished" : seen.outcome == job::Outcome::kNone ? "Lost" : "Failed");
    live.Touch();
    ended = true;
  }
  return ended;
}

}  // namespace tessera::scheduler

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/controller/live_job.h"
#include "scheduler/controller/proto_time.h"

namespace tessera::scheduler {
namespace {

constexpr double kSmoothing = 0.2;  // weight of the newest step time
constexpr int64_t kStepsToDoubt = 20;
constexpr int64_t kMissedCheckpoints = 3;
constexpr double kDoubtfulError = 0.5;  // of the step time, above the plan

const char* PhaseName(v1::WorkerPhase phase) {
  switch (phase) {
    case v1::WORKER_PHASE_RENDEZVOUS:
      return "Rendezvous";
    case v1::WORKER_PHASE_LOADING:
      return "Loading";
    case v1::WORKER_PHASE_TRAINING:
      return "Training";
    case v1::WORKER_PHASE_EVALUATING:
      return "Evaluating";
    case v1::WORKER_PHASE_CHECKPOINTING:
      return "Checkpointing";
    case v1::WORKER_PHASE_EXPORTING:
      return "Exporting";
    default:
      return "Starting";
  }
}

template <typename Predicate>
void NoteWhenAll(const LiveJob& live, absl::Time& time, absl::Time now, Predicate predicate) {
  if (time != absl::InfiniteFuture()) return;
  for (const LiveWorker& worker : live.workers) {
    if (!predicate(worker.seen)) return;
  }
  time = now;
}

void NoteMilestones(LiveJob& live, absl::Time now) {
  NoteWhenAll(live, live.greeted_at, now, [](const auto& seen) { return seen.greeted; });
  NoteWhenAll(live, live.met_at, now,
              [](const auto& seen) { return seen.phase > job::Phase::kRendezvous || seen.step > 0; });
}

// True at the first step of the epoch.
bool NoteStep(LiveJob& live, job::ObservedWorker& seen, int64_t step, absl::Time now) {
  if (step <= seen.step) return false;
  seen.standstill.reset();
  seen.step = step;
  live.progress_at = now;
  NoteMilestones(live, now);
  if (live.first_step_at != absl::InfiniteFuture()) return false;
  live.first_step_at = now;
  return true;
}

void SmoothSpeed(LiveJob& live, const v1::Progress& progress, absl::Time now) {
  v1::TrainingJobStatus& status = live.status();
  // Ranks report the same steps; each counts once.
  if (progress.step() <= live.smoothed_step || progress.step_seconds() <= 0) return;
  const bool first = live.smoothed_step < 0 || status.step_seconds() <= 0;
  live.smoothed_step = progress.step();
  const double seconds =
      first ? progress.step_seconds()
            : (1 - kSmoothing) * status.step_seconds() + kSmoothing * progress.step_seconds();
  status.set_step_seconds(seconds);
  if (progress.step() > 0) {
    const double tokens_per_step =
        static_cast<double>(progress.tokens()) / static_cast<double>(progress.step());
    status.set_tokens_per_second(tokens_per_step / seconds);
  }
  const int64_t left = std::max<int64_t>(0, status.total_steps() - progress.step());
  live.estimate.Note(progress.step(), now);
  SetDuration(
      live.estimate.Left(status.total_steps()).value_or(absl::Seconds(seconds * static_cast<double>(left))),
      status.mutable_eta());
}

void NoteStepPrediction(LiveJob& live) {
  v1::TrainingJobStatus& status = live.status();
  const double step = live.plan.predicted_step_seconds();
  if (step > 0 && status.step_seconds() > 0)
    status.set_step_prediction_error(status.step_seconds() / step - 1);
}

bool NoteProgress(LiveJob& live, int rank, const v1::Progress& progress, absl::Time now) {
  job::ObservedWorker& seen = live.workers[static_cast<size_t>(rank)].seen;
  v1::TrainingJobStatus& status = live.status();
  v1::WorkerStatus& worker = *status.mutable_workers(rank);
  worker.set_step(progress.step());
  worker.set_memory_used_bytes(progress.memory_used_bytes());
  worker.set_memory_peak_bytes(progress.memory_peak_bytes());
  worker.set_resident_bytes(progress.resident_bytes());
  worker.set_memory_reserved_bytes(progress.device().reserved_bytes());
  worker.set_fragmentation_ratio(progress.device().fragmentation_ratio());
  if (progress.traffic_bytes() > 0) worker.set_traffic_bytes_per_step(progress.traffic_bytes());
  worker.set_compute_seconds(progress.compute_seconds());
  worker.set_plan_generation(progress.plan_generation());
  worker.set_gradient_kept_ratio(progress.gradient_kept_ratio());
  if (seen.phase <= job::Phase::kTraining && progress.step() > 0) worker.set_state("Training");
  // After a restart from a checkpoint steps begin again from there.
  if (progress.step() >= status.step() || live.first_step_at == absl::InfiniteFuture()) {
    status.set_step(progress.step());
    status.set_tokens(progress.tokens());
    if (progress.step() > 0) status.set_loss(progress.loss());
    status.set_learning_rate(progress.learning_rate());
  }
  if (progress.has_validation_loss()) {
    status.set_validation_loss(progress.validation_loss());
    status.set_validation_tokens(progress.validation_tokens());
    if (progress.step() == 0) status.set_initial_validation_loss(progress.validation_loss());
  }
  if (progress.has_validation_accuracy()) status.set_validation_accuracy(progress.validation_accuracy());
  SmoothSpeed(live, progress, now);
  NoteStepPrediction(live);
  return NoteStep(live, seen, progress.step(), now);
}

bool NotePhase(LiveJob& live, int rank, const v1::PhaseChange& change, absl::Time now) {
  job::ObservedWorker& seen = live.workers[static_cast<size_t>(rank)].seen;
  seen.phase = static_cast<job::Phase>(change.phase());
  seen.standstill.reset();
  live.progress_at = now;
  live.status().mutable_workers(rank)->set_state(PhaseName(change.phase()));
  NoteMilestones(live, now);
  return false;
}

void NoteStandstill(LiveJob& live, int rank, const v1::Standstill& standstill) {
  live.workers[static_cast<size_t>(rank)].seen.standstill = standstill.waiting_in();
  if (live.workers[static_cast<size_t>(rank)].seen.phase > job::Phase::kTraining) return;
  live.status().mutable_workers(rank)->set_state(
      standstill.waiting_in().empty() ? "Computing" : absl::StrCat("Waiting in ", standstill.waiting_in()));
}

bool NoteFinished(LiveJob& live, int rank, const v1::Finished& finished, absl::Time now) {
  job::ObservedWorker& seen = live.workers[static_cast<size_t>(rank)].seen;
  v1::WorkerStatus& worker = *live.status().mutable_workers(rank);
  if (seen.outcome != job::Outcome::kNone) return false;  // said again after a broken stream
  const bool known = finished.outcome() != v1::WORKER_OUTCOME_UNSPECIFIED;
  seen.outcome = known ? static_cast<job::Outcome>(finished.outcome()) : job::Outcome::kApplication;
  seen.error = finished.error();
  seen.ended_at = std::min(seen.ended_at, now);
  live.notes.outcomes.resize(live.workers.size());
  live.notes.outcomes[static_cast<size_t>(rank)] = static_cast<int>(seen.outcome);
  const bool clean = seen.outcome == job::Outcome::kCompleted || seen.outcome == job::Outcome::kStopped;
  worker.set_state(clean ? "Finished" : "Failed");
  // A lost peer is that peer's fault: who only saw it is not accused (the failure names the culprit).
  const bool witness = seen.outcome == job::Outcome::kPeerLost;
  if (!finished.error().empty() && !witness) worker.set_last_error(finished.error());
  if (finished.step() > 0) {
    worker.set_step(finished.step());
    NoteStep(live, seen, finished.step(), now);
    live.status().set_step(std::max(live.status().step(), finished.step()));
  }
  if (!finished.exported_model().empty()) live.status().set_exported_model(finished.exported_model());
  if (seen.outcome == job::Outcome::kCompleted)
    SetDuration(absl::ZeroDuration(), live.status().mutable_eta());
  return true;
}

}  // namespace

void NoteMemoryPrediction(LiveJob& live) {
  double memory = 0;
  for (const v1::WorkerStatus& worker : live.status().workers()) {
    if (worker.memory_predicted_bytes() <= 0 || worker.memory_peak_bytes() <= 0) continue;
    const double error = static_cast<double>(worker.memory_peak_bytes()) /
                             static_cast<double>(worker.memory_predicted_bytes()) -
                         1;
    if (std::abs(error) > std::abs(memory)) memory = error;
  }
  live.status().set_memory_prediction_error(memory);
}

bool DoubtsLinks(LiveJob& live) {
  if (live.links_doubted || live.plan.links().empty()) return false;
  if (live.status().step() < kStepsToDoubt || live.status().step_prediction_error() <= kDoubtfulError)
    return false;
  live.links_doubted = true;
  return true;
}

std::string MissedCheckpoints(LiveJob& live) {
  const int64_t interval = live.record.job.spec().checkpoint().interval(), step = live.status().step();
  if (live.checkpoint_step < 0) live.checkpoint_step = step;
  // One is written while steps go on, and may take longer than an interval.
  if (live.checkpoint_missed || interval <= 0 || step < live.checkpoint_step + kMissedCheckpoints * interval)
    return "";
  live.checkpoint_missed = true;
  return absl::StrCat("no checkpoint was completed since step ", live.checkpoint_step,
                      ", and one is due every ", interval, " steps: the workers' logs say why");
}

bool NoteHello(LiveJob& live, const v1::Hello& hello, std::shared_ptr<WorkerSink> sink, absl::Time now) {
  const int rank = hello.identity().rank();
  LiveWorker& worker = live.workers[static_cast<size_t>(rank)];
  worker.sink = std::move(sink);
  worker.seen.connected = worker.seen.greeted = true;
  v1::WorkerStatus& status = *live.status().mutable_workers(rank);
  if (hello.identity().pid() > 0) status.set_pid(hello.identity().pid());
  if (!hello.identity().node().empty()) status.set_node(hello.identity().node());
  if (!hello.metrics_address().empty()) status.set_metrics_address(hello.metrics_address());
  v1::WorkerPhase phase = hello.phase();
  if (phase == v1::WORKER_PHASE_UNSPECIFIED && hello.step() > 0) phase = v1::WORKER_PHASE_TRAINING;
  if (phase != v1::WORKER_PHASE_UNSPECIFIED) {
    // A stream that broke lost what was said on it, and a restarted scheduler never heard it.
    const auto now_in = static_cast<job::Phase>(phase);
    if (worker.seen.phase != now_in) live.progress_at = now;
    worker.seen.phase = now_in;
    status.set_state(PhaseName(phase));
  } else if (status.state().empty() || status.state() == "Starting") {
    status.set_state("Rendezvous");
  }
  NoteStep(live, worker.seen, hello.step(), now);
  NoteMilestones(live, now);
  live.Touch();
  return true;
}

// A step that had to be done twice: what was in use then is the least that the worker needs.
static void NoteMemoryShortage(LiveJob& live, int rank, const v1::MemoryShortage& shortage) {
  v1::WorkerStatus& worker = *live.status().mutable_workers(rank);
  const v1::DeviceProfile& device = shortage.device();
  worker.set_memory_peak_bytes(std::max(worker.memory_peak_bytes(), device.allocated_bytes()));
  worker.set_last_error(absl::StrCat("step ", shortage.step(), ": ", shortage.error()));
  live.status().add_notices(absl::StrFormat(
      "worker %d ran out of memory in step %d and repeated it: %.0f MB in tensors and %.0f MB kept by the "
      "allocator on %s, %.0f MB in use there by others",
      rank, shortage.step(), static_cast<double>(device.allocated_bytes()) / 1e6,
      static_cast<double>(device.reserved_bytes() - device.allocated_bytes()) / 1e6, device.name(),
      static_cast<double>(device.other_bytes()) / 1e6));
}

bool NoteMessage(LiveJob& live, int rank, const v1::WorkerUp& message, absl::Time now) {
  live.Touch();
  switch (message.message_case()) {
    case v1::WorkerUp::kProgress:
      return NoteProgress(live, rank, message.progress(), now);
    case v1::WorkerUp::kPhase:
      return NotePhase(live, rank, message.phase(), now);
    case v1::WorkerUp::kFinished:
      return NoteFinished(live, rank, message.finished(), now);
    case v1::WorkerUp::kCheckpoint:
      live.status().set_checkpoint(message.checkpoint().path());
      live.checkpoint_step = message.checkpoint().step();
      live.progress_at = now;
      if (rank != 0) return false;  // all say the same
      for (const std::string& damaged : message.checkpoint().passed_over()) {
        live.status().add_notices(absl::StrCat("resumed from ", message.checkpoint().path(),
                                               ", as a newer checkpoint is damaged: ", damaged));
      }
      return false;
    case v1::WorkerUp::kMemoryShortage:
      NoteMemoryShortage(live, rank, message.memory_shortage());
      return false;
    case v1::WorkerUp::kStandstill:
      NoteStandstill(live, rank, message.standstill());
      return false;
    case v1::WorkerUp::kPlanAcknowledged:
      live.status().mutable_workers(rank)->set_held_plan_generation(message.plan_acknowledged().generation());
      return false;
    case v1::WorkerUp::kLayerStatistics:
      return NoteStatistics(live, rank, message.layer_statistics());
    default:
      return false;
  }
}

}  // namespace tessera::scheduler

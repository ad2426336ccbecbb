// A job that has not ended, in the controller's memory: its record, its notes,
// and what its workers say. Lives under the controller's mutex.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/controller/controller.h"
#include "scheduler/controller/controller_notes.h"
#include "scheduler/job/admission.h"
#include "scheduler/job/job_view.h"
#include "scheduler/job/progress_estimate.h"
#include "scheduler/plan/loss_regression.h"

namespace tessera::scheduler {

struct LiveWorker {
  job::ObservedWorker seen;
  std::shared_ptr<WorkerSink> sink;  // null while not connected
};

// What is known of gradient dropping in this epoch (controller_budgets.cc).
struct BudgetRound {
  std::map<int, v1::LayerStatistics> reports;  // by rank, since budgets were computed last
  plan::LossRegression loss;
  std::string
      trigger;      // why new budgets are to be made: statistics, request, regression; empty: they are not
  std::string why;  // for people, with numbers
  int64_t budgets_of = 0;  // an earlier generation's instead of computed ones
  bool asked = false;      // statistics are on their way because somebody wants new budgets
  int64_t proposed = 0;    // generation that is not in force everywhere yet; 0: none
  absl::Time proposed_at;
};

// What all workers of a group are assigned, written once.
struct SharedAssignment {
  std::string made_from;  // what it depends on, to be compared; empty: there is none yet
  DownMessage message;    // without a rank
};

struct LiveJob {
  JobRecord record;
  ControllerNotes notes;
  v1::Plan plan;
  job::Demand claim;                // of the plan
  std::vector<LiveWorker> workers;  // of the current epoch, by rank
  std::string launch_error;
  bool launch_error_final = false;
  std::string plan_error;  // of the last attempt to plan again what was stored without a plan
  bool plan_error_final = false;
  std::string replan_reason;  // why it is planned again, beyond what the notes say
  // Of the plan's nodes one that does not report, as long as the job has no workers; empty: none.
  std::string silent_node;
  absl::Time silent_since;
  bool node_lost = false;    // for so long that a plan for the others is wanted
  std::string tried_on;      // the nodes that reported when one was tried
  std::string without_node;  // why there was none
  std::string resume_from;   // decided once per epoch, the same for all ranks
  bool resume_decided = false;
  SharedAssignment assignment;
  absl::Time launched_at = absl::InfiniteFuture();
  absl::Time greeted_at = absl::InfiniteFuture();
  absl::Time met_at = absl::InfiniteFuture();
  absl::Time first_step_at = absl::InfiniteFuture();
  absl::Time progress_at = absl::InfiniteFuture();
  absl::Time terminated_at = absl::InfiniteFuture();
  absl::Time sized_at = absl::InfinitePast();  // another number of workers was last looked for

  BudgetRound budgets;
  bool links_doubted = false;      // in this epoch: they have been marked for measuring
  int64_t checkpoint_step = -1;    // of the last one, or where this epoch was first heard of
  bool checkpoint_missed = false;  // in this epoch: that none came has been said
  int64_t smoothed_step = -1;      // newest step that went into the smoothed time
  job::ProgressEstimate estimate;  // of this epoch
  bool changed = false;            // watchers have not seen it
  bool dirty = false;              // the store has not
  bool unsaved = false;            // a decision could not be stored: nothing is done for the job until it is
  absl::Time written_at = absl::InfinitePast();

  v1::TrainingJobStatus& status() { return *record.job.mutable_status(); }
  const v1::TrainingJobStatus& status() const { return record.job.status(); }
  JobKey key() const { return {record.job.namespace_(), record.job.name()}; }
  // Of the next or present group; LiveJob::workers has as many.
  int worker_count() const {
    return notes.workers > 0 ? notes.workers : std::max(1, record.job.spec().workers().count());
  }
  // What the group trains by: the job's specification, for as many workers as the group has.
  v1::TrainingJobSpec group_spec() const {
    v1::TrainingJobSpec spec = record.job.spec();
    spec.mutable_workers()->set_count(worker_count());
    return spec;
  }
  // Wants to run, and has no workers.
  bool unlaunched() const {
    return state() == job::JobState::kQueued || state() == job::JobState::kPlanned ||
           state() == job::JobState::kDegraded;
  }
  // Its group is to stop for one of another size.
  bool changes_size() const { return notes.resize_to > 0 || notes.grow_to > 0; }
  job::JobState state() const { return static_cast<job::JobState>(status().state()); }
  void Touch() { changed = dirty = true; }
};

// From a stored record, as after a restart: whatever was launched is taken to run until
// the launcher says otherwise.
LiveJob Adopt(JobRecord record, v1::Plan plan, absl::Time now);
// A fresh group of workers in status and memory; what was observed of the last one is forgotten.
void ResetWorkers(LiveJob& live);

// job_observation.cc: the inputs of job::Reconcile.
job::JobView ViewOf(const LiveJob& live);
job::Observed ObservedOf(const LiveJob& live);
// Processes as the launcher sees them. True when something ended.
bool NoteProcesses(LiveJob& live, const std::vector<ProcessState>& processes, absl::Time now);

// worker_report.cc: what workers say, into status and observation. True when the controller
// should decide at once.
bool NoteHello(LiveJob& live, const v1::Hello& hello, std::shared_ptr<WorkerSink> sink, absl::Time now);
bool NoteMessage(LiveJob& live, int rank, const v1::WorkerUp& message, absl::Time now);

// The worst peak of a worker against its plan. Looks at all of them: once a write, not once a report.
void NoteMemoryPrediction(LiveJob& live);

// True once an epoch, when its steps take much longer than the plan said that was made from measured links.
bool DoubtsLinks(LiveJob& live);

// What to say once an epoch, when several checkpoints should have been written since the last; or "".
std::string MissedCheckpoints(LiveJob& live);

// controller_budgets.cc: its plan as workers are told of it while they train.
DownMessage PlanMessage(const LiveJob& live);
// True when new budgets are to be made.
bool NoteStatistics(LiveJob& live, int rank, const v1::LayerStatistics& statistics);
// A change that came into force everywhere, once; and, later, how the loss has changed since.
struct BudgetNews {
  int64_t generation = 0;  // in force since `step`; 0: nothing new
  int64_t step = 0;
  std::optional<plan::LossChange> change;
};
BudgetNews NoteBudgetProgress(LiveJob& live, int rank, const v1::Progress& progress);

}  // namespace tessera::scheduler

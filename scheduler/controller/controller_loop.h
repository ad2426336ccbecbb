// The controller: one thread that observes, decides, acts and writes. Requests and
// worker messages change jobs under the mutex and wake it. Everything that leaves the
// controller (workers, watchers, launcher) is done by this thread without the mutex.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "scheduler/controller/controller.h"
#include "scheduler/controller/live_jobs.h"
#include "scheduler/controller/rendezvous_store.h"
#include "scheduler/controller/watch_registry.h"
#include "scheduler/job/reconcile.h"

namespace tessera::scheduler {

class ControllerLoop final : public Controller {
 public:
  ControllerLoop(const ControllerOptions& options, JobStore* store, Launcher* launcher,
                 ModelDescriber* describer, ControllerMetrics* metrics);
  ~ControllerLoop() override;

  absl::Status Start() override;
  void Stop() override;

  // controller_requests.cc
  absl::StatusOr<v1::CreateTrainingJobResponse> Create(const v1::TrainingJob& job,
                                                       const std::string& request_id, bool validate_only,
                                                       const std::function<bool()>& caller_gone) override;
  absl::StatusOr<v1::TrainingJob> Cancel(const JobKey& key) override;
  absl::StatusOr<v1::TrainingJob> Suspend(const JobKey& key) override;
  absl::StatusOr<v1::TrainingJob> Resume(const JobKey& key) override;
  absl::StatusOr<v1::TrainingJob> Update(const JobKey& key, const std::string& etag,
                                         const std::function<void(v1::TrainingJobSpec*)>& change) override;
  absl::StatusOr<v1::TrainingJob> Resize(const JobKey& key, const std::string& etag, int workers) override;
  absl::Status Delete(const JobKey& key, const std::string& etag) override;
  absl::StatusOr<int64_t> Watch(const JobKey& key, int64_t from_revision, WatchCallback callback) override;
  void Unwatch(int64_t watch) override;

  absl::StatusOr<v1::TrainingJob> RecomputeBudgets(const JobKey& key, const BudgetRequest& request) override;

  // controller_workers.cc
  absl::StatusOr<std::string> WorkerToken(const std::string& job_uid, int epoch) override;
  absl::Status WorkerConnected(const v1::Hello& hello, std::shared_ptr<WorkerSink> sink) override;
  void WorkerMessage(const v1::WorkerIdentity& who, const v1::WorkerUp& message) override;
  void WorkerDisconnected(const v1::WorkerIdentity& who, const std::shared_ptr<WorkerSink>& sink) override;
  absl::StatusOr<v1::StoreResponse> Store(const v1::StoreRequest& request, absl::Time deadline) override;

 private:
  struct Effect {
    std::string uid;
    job::Action action;
    std::string processes;
  };

  absl::Time Now() const { return options_.clock(); }
  void Run();
  void ObserveProcesses();
  std::vector<job::Claim> Claims() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Effect> Decide(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishPass(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DeleteExpired(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FlushOutbox();
  void EmptyTrash();
  void BoundLogs(absl::Time now);
  void Perform(const Effect& effect);
  void PerformLaunch(const std::string& uid, int epoch);
  void PerformPlan(const std::string& uid);
  // `previous`: the plan that this one follows, 0 if it is the first; `reason`: why it does.
  void PlanAgain(const std::string& uid, const v1::TrainingJobSpec& spec, const v1::Plan& earlier,
                 const std::string& reason);
  void TakePlan(LiveJob& live, v1::Plan plan, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What layers were found to need counts for other workers and masks as well.
  void KeepBudgets(const v1::TrainingJobSpec& spec, const v1::Plan& earlier, v1::Plan* plan);

  // controller_elastic.cc
  struct ElasticSearch {
    std::string uid;
    v1::TrainingJobSpec spec;
    v1::Plan earlier;
    int present = 0;       // workers
    int from = 0, to = 0;  // tried one by one, downwards: the first that can be had is taken
  };
  void ResizeElastic(absl::Time now);
  void FindOtherSize(const ElasticSearch& search);
  // If it claimed `demand` and had not started.
  bool WouldBeAdmitted(const LiveJob& live, const job::Demand& demand, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Shrink(LiveJob& live, v1::Plan plan, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Grow(LiveJob& live, int workers, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // controller_nodes.cc
  // Jobs that wait for a node that does not report are to be planned again, once for each set of nodes that
  // do.
  void WatchNodes(const std::map<std::string, job::NodeMemory>& reporting, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It does not fit without the node: the job waits for it, or for others.
  void KeepPlanOfSilentNode(LiveJob& live, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // controller_budgets.cc
  void StartBudgets();
  void MakeBudgets(const std::string& uid);
  void PublishBudgets(LiveJob& live, v1::Plan plan, const std::string& trigger, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FollowBudgets(LiveJob& live, int rank, const v1::Progress& progress, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendPlan(const LiveJob& live, int rank, const DownMessage& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool Enforced(const v1::Plan& plan) {
    return plan.dropping().mode() == v1::DROPPING_MODE_ENFORCE && plan.dropping().kept_size() > 0;
  }

  // job_transition.cc
  void Apply(LiveJob& live, const job::Decision& decision, absl::Time now, std::vector<Effect>& effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountFailure(LiveJob& live, const job::Failure& failure, const job::Decision& decision)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A worker ran out of memory within what was planned: plan with less if the job leaves its coverage to us.
  void NoteMemoryEvidence(LiveJob& live, int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotePeaks(LiveJob& live, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginEpoch(LiveJob& live, int epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(LiveJob& live) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EnterState(LiveJob& live, job::JobState to, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskStop(LiveJob& live) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Out of the store, and the files to the trash. `etag` as in JobStore::Delete.
  absl::Status Forget(const v1::TrainingJob& job, int64_t revision, const std::string& etag)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A job that is to go stays until it can.
  void ForgetOrRetry(const v1::TrainingJob& job, int64_t revision, const std::string& etag, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(const std::string& uid, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(LiveJob& live, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Event(const LiveJob& live, bool warning, const std::string& reason, const std::string& message,
             absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The job if it may still be changed, or why not. `verb` ends the sentence.
  absl::StatusOr<LiveJob*> FindChangeable(const JobKey& key, const std::string& etag, const char* verb)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyResize(LiveJob& live, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The job of a worker's epoch and rank, or why it is refused.
  absl::StatusOr<LiveJob*> FindFor(const v1::WorkerIdentity& who) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MeasureLinksAnew(LiveJob& live, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendAssignment(LiveJob& live, int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<v1::TrainingJob> SetSuspend(const JobKey& key, bool suspend);
  void ScheduleExpiry(const v1::TrainingJob& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { wake_ = true; }
  std::string RunDirectory(const std::string& uid) const;

  const ControllerOptions options_;
  JobStore* const store_;
  Launcher* const launcher_;
  ModelDescriber* const describer_;
  ControllerMetrics* const metrics_;  // may be null

  RendezvousStore rendezvous_;
  WatchRegistry watches_;
  absl::Mutex mutex_;
  LiveJobs jobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::AnyInvocable<void()>> outbox_ ABSL_GUARDED_BY(mutex_);  // for workers, in order
  std::vector<std::string> trash_ ABSL_GUARDED_BY(mutex_);                  // run directories of deleted jobs
  std::multimap<absl::Time, std::pair<JobKey, std::string>> expiries_
      ABSL_GUARDED_BY(mutex_);  // name and uid
  bool wake_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time logs_bounded_at_ = absl::InfinitePast();  // of the loop's thread
  std::thread thread_;
  std::atomic<bool> planning_ = false;
  std::thread planner_;  // of the loop's thread; of jobs that were stored without a plan, one at a time
};

}  // namespace tessera::scheduler

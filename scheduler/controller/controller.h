// The loop: observe, decide, act, one status write. Decisions are the pure
// functions of scheduler/job and scheduler/plan; this class performs them.
// Handlers of services/api and the worker channel call it from their threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "scheduler/controller/down_message.h"
#include "scheduler/controller/watch_update.h"
#include "scheduler/launch/launcher.h"
#include "scheduler/store/job_store.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::scheduler {

// Where workers can run, and how far those places are from each other.
struct NodeInventory {
  std::vector<v1::NodeProfile> nodes;
  std::vector<v1::LinkProfile> links;
};

struct ControllerOptions {
  std::string state_directory;    // jobs/<uid>/ below it: run directory, checkpoints
  std::string scheduler_address;  // given to workers, see LaunchRequest::scheduler
  std::string node;
  int64_t memory_bytes = 0;  // of this machine, 0 = unknown
  // Of them, what nobody uses now, jobs or others; -1: unknown. Empty: likewise. Must not block.
  std::function<int64_t()> available_bytes;
  std::vector<int64_t> gpu_bytes;  // of each GPU of this machine, 0 = unknown
  int cores = 1;
  bool group_tokens = true;  // workers get a token of their group; else their launcher gives them their own
  std::function<NodeInventory()> inventory;  // empty: all workers run on `node`
  // A job's steps contradict the links of this node: they should be measured anew. May be empty; must not
  // block.
  std::function<void(const std::string& node)> links_doubted;
  absl::Duration elastic_patience =
      absl::Seconds(30);                             // an elastic job waits so long before it is made smaller
  absl::Duration elastic_growth = absl::Minutes(5);  // and trains so long before it is made larger
  absl::Duration tick = absl::Milliseconds(200);
  std::function<absl::Time()> clock = absl::Now;
};

// Counters and gauges the controller reports; services/metrics exports them.
class ControllerMetrics {
 public:
  virtual ~ControllerMetrics() = default;
  virtual void JobStateChanged(const std::string& from, const std::string& to) = 0;  // "" = none
  virtual void QueueWait(absl::Duration wait) = 0;
  virtual void TimeToFirstStep(absl::Duration wait) = 0;
  virtual void PlanMade(absl::Duration took) = 0;
  virtual void WorkerFailed(const std::string& failure_class) = 0;
  // trigger: statistics, request, regression; result: published, shadow, unchanged, failed.
  virtual void PlanRecomputed(const std::string& trigger, const std::string& result) = 0;
  virtual void PlanApplied(absl::Duration lag) = 0;  // from published to in force everywhere
};

// How a job's gradient budgets are to be made anew.
struct BudgetRequest {
  std::vector<v1::DensityLimit> layer_limits;  // become the job's, if there are any
  int64_t budgets_of = 0;                      // generation; 0: computed from what the workers measure now
  std::string etag;
};

// A worker's end of its stream. Send may be called from any thread.
class WorkerSink {
 public:
  virtual ~WorkerSink() = default;
  virtual void Send(const DownMessage& message) = 0;
  virtual void Close(const absl::Status& status) = 0;
};

class Controller {
 public:
  virtual ~Controller() = default;
  virtual absl::Status Start() = 0;  // re-adopts what runs already
  virtual void Stop() = 0;           // workers go on

  // `job` has its defaults and is valid in itself. Describes the model, plans, checks
  // that it fits, and (unless validate_only) stores it QUEUED.
  // Asks `caller_gone` (may be empty) before it stores: Cancelled if so.
  virtual absl::StatusOr<v1::CreateTrainingJobResponse> Create(const v1::TrainingJob& job,
                                                               const std::string& request_id,
                                                               bool validate_only,
                                                               const std::function<bool()>& caller_gone) = 0;
  absl::StatusOr<v1::CreateTrainingJobResponse> Create(const v1::TrainingJob& job,
                                                       const std::string& request_id, bool validate_only) {
    return Create(job, request_id, validate_only, nullptr);
  }
  virtual absl::StatusOr<v1::TrainingJob> Cancel(const JobKey& key) = 0;
  virtual absl::StatusOr<v1::TrainingJob> Suspend(const JobKey& key) = 0;
  virtual absl::StatusOr<v1::TrainingJob> Resume(const JobKey& key) = 0;
  // `change` touches only fields that are read anew at each pass. Aborted if `etag` is neither empty nor the
  // job's.
  virtual absl::StatusOr<v1::TrainingJob> Update(const JobKey& key, const std::string& etag,
                                                 const std::function<void(v1::TrainingJobSpec*)>& change) = 0;
  // Plans for `workers` first: ResourceExhausted if that does not fit, FailedPrecondition if it would change
  // the run's length. Then the job stops at a checkpoint, if it runs, and queues with the new plan.
  virtual absl::StatusOr<v1::TrainingJob> Resize(const JobKey& key, const std::string& etag, int workers) = 0;
  // A new plan generation follows, which all workers adopt at one step; or an event that says why not.
  // FailedPrecondition: no gradient budgets, or no workers that train. NotFound: no such earlier plan.
  virtual absl::StatusOr<v1::TrainingJob> RecomputeBudgets(const JobKey& key,
                                                           const BudgetRequest& request) = 0;
  // With its files, but not those in a checkpoint.uri. Cancels first if it runs; returns before all is gone.
  virtual absl::Status Delete(const JobKey& key, const std::string& etag) = 0;

  // Current state at once (unless from_revision is its revision), then every change after it, until the
  // callback returns false or Unwatch. Called from the controller's thread: must not block.
  using WatchCallback = absl::AnyInvocable<bool(const SharedUpdate&)>;
  virtual absl::StatusOr<int64_t> Watch(const JobKey& key, int64_t from_revision, WatchCallback callback) = 0;
  // The callback is not running when this returns, unless it is the caller.
  virtual void Unwatch(int64_t watch) = 0;

  // Worker channel. The token was checked against (job uid, epoch) by the transport through WorkerToken.
  virtual absl::StatusOr<std::string> WorkerToken(const std::string& job_uid, int epoch) = 0;
  // Aborted: an epoch that is over. A worker at step 0 is sent its Assignment. The sink is closed with
  // OK once its Finished is stored.
  virtual absl::Status WorkerConnected(const v1::Hello& hello, std::shared_ptr<WorkerSink> sink) = 0;
  virtual void WorkerMessage(const v1::WorkerIdentity& who, const v1::WorkerUp& message) = 0;
  virtual void WorkerDisconnected(const v1::WorkerIdentity& who, const std::shared_ptr<WorkerSink>& sink) = 0;
  // Blocks a GET until the key is there or `deadline`.
  virtual absl::StatusOr<v1::StoreResponse> Store(const v1::StoreRequest& request, absl::Time deadline) = 0;
};

std::unique_ptr<Controller> MakeController(const ControllerOptions& options, JobStore* store,
                                           Launcher* launcher, ModelDescriber* describer,
                                           ControllerMetrics* metrics);

}  // namespace tessera::scheduler

#include "scheduler/controller/controller_loop.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/controller/plan_maker.h"
#include "scheduler/controller/proto_time.h"
#include "scheduler/controller/run_directory.h"
#include "scheduler/controller/worker_offers.h"
#include "scheduler/controller/worker_tokens.h"
#include "scheduler/job/admission.h"
#include "scheduler/launch/log_bound.h"

namespace tessera::scheduler {
namespace {

constexpr absl::Duration kLogCheckInterval = absl::Seconds(5);
constexpr absl::Duration kWriteInterval = absl::Milliseconds(500);  // of progress alone

// What the job's workers have taken of its claim.
job::NodeBytes ResidentBytes(const LiveJob& live, const ControllerOptions& options) {
  job::NodeBytes taken;
  for (const v1::WorkerStatus& worker : live.status().workers()) {
    const int rank = worker.rank();
    if (rank < 0 || rank >= live.plan.workers_size()) continue;
    AddAt(options, live.plan.workers(rank).node(), worker.resident_bytes(), &taken);
  }
  return taken;
}

bool WaitsForCapacity(const LiveJob& live) {
  return live.state() == job::JobState::kQueued && live.notes.planned && !live.unsaved &&
         !live.status().cancel_requested();
}

// All that wait for capacity among them.
bool LooksForNodes(const LiveJob& live) { return live.unlaunched() || !live.silent_node.empty(); }

// What the workers need, of their plan and their job.
void AddNeeds(const v1::Plan& plan, const v1::TrainingJobSpec& spec, LaunchRequest& request) {
  for (const v1::WorkerPlan& worker : plan.workers()) {
    request.nodes.push_back(worker.node());
    const bool first = request.nodes.size() == 1;
    const int64_t peak = worker.memory().peak(), limit = worker.memory_limit_bytes();
    request.memory_bytes = std::max(request.memory_bytes, peak);
    request.process_bytes = std::max<int64_t>(request.process_bytes, worker.process_bytes());
    if (first || limit < request.least_limit_bytes) request.least_limit_bytes = limit;
    request.least_memory_bytes = first ? peak : std::min(request.least_memory_bytes, peak);
  }
  request.gpus = spec.resources().gpus();
  request.queue = spec.queue();
  request.env = {spec.env().begin(), spec.env().end()};
  request.reads = FoldersRead(spec);
  if (!spec.checkpoint().uri().empty()) request.writes.push_back(spec.checkpoint().uri());
}

}  // namespace

ControllerLoop::ControllerLoop(const ControllerOptions& options, JobStore* store, Launcher* launcher,
                               ModelDescriber* describer, ControllerMetrics* metrics)
    : options_(options), store_(store), launcher_(launcher), describer_(describer), metrics_(metrics) {}

ControllerLoop::~ControllerLoop() { Stop(); }

absl::Status ControllerLoop::Start() {
  TESSERA_ASSIGN_OR_RETURN(const JobPage page, store_->List("-", 0, ""));
  absl::MutexLock lock(&mutex_);
  const absl::Time now = Now();
  for (const JobRecord& record : page.jobs) {
    const std::string uid = record.job.uid();
    const JobKey key{record.job.namespace_(), record.job.name()};
    if (job::IsTerminal(static_cast<job::JobState>(record.job.status().state()))) {
      if (DecodeNotes(record.notes).delete_when_done) {
        ForgetOrRetry(record.job, record.revision, "", now);
      } else {
        ScheduleExpiry(record.job);
      }
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(std::vector<v1::Plan> plans, store_->Plans(key));
    LiveJob live = Adopt(record, plans.empty() ? v1::Plan() : plans.back(), now);
    // A job that was resized and not planned again has the old plan.
    live.notes.planned = !plans.empty() && plans.back().workers_size() == live.worker_count();
    live.claim = ClaimOf(live.plan, live.record.job.spec(), options_);
    if (live.state() == job::JobState::kQueued && live.notes.queued_at == absl::InfiniteFuture()) {
      live.notes.queued_at = now;
    }
    if (live.status().epoch() > 0) rendezvous_.Open(uid, live.status().epoch());
    if (metrics_ != nullptr) {
      metrics_->JobStateChanged("", std::string(job::JobStateName(live.state())));
    }
    spdlog::info("event=job_adopted job={}/{} state={} epoch={}", key.ns, key.name,
                 std::string(job::JobStateName(live.state())), live.status().epoch());
    jobs_.Add(std::move(live));
  }
  std::set<std::string> uids;
  for (const JobRecord& record : page.jobs) uids.insert(record.job.uid());
  FinishDeletions(options_.state_directory + "/jobs",
                  [&uids](const std::string& uid) { return uids.contains(uid); });
  Wake();
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void ControllerLoop::Stop() {
  rendezvous_.Close();
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  describer_->Stop();
  if (thread_.joinable()) thread_.join();
  if (planner_.joinable()) planner_.join();
  absl::MutexLock lock(&mutex_);
  for (const auto& [uid, live] : jobs_.awake()) {
    if (live->dirty) Write(*live, Now()).IgnoreError();
    for (LiveWorker& worker : live->workers) worker.sink = nullptr;
  }
  outbox_.clear();
}

void ControllerLoop::Run() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return wake_ || stopping_; };
      mutex_.AwaitWithTimeout(absl::Condition(&ready), options_.tick);
      if (stopping_) return;
      wake_ = false;
    }
    ObserveProcesses();
    std::vector<Effect> effects;
    {
      absl::MutexLock lock(&mutex_);
      const absl::Time now = Now();
      effects = Decide(now);
      FinishPass(now);
    }
    FlushOutbox();
    for (const Effect& effect : effects) Perform(effect);
    StartBudgets();
    ResizeElastic(Now());
    EmptyTrash();
    BoundLogs(Now());
    watches_.Deliver();
  }
}

void ControllerLoop::ObserveProcesses() {
  std::vector<std::pair<std::string, std::string>> records;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [uid, live] : jobs_.awake()) {
      if (!live->record.processes.empty()) records.emplace_back(uid, live->record.processes);
    }
  }
  for (const auto& [uid, record] : records) {
    absl::StatusOr<std::vector<ProcessState>> processes = launcher_->Observe(record);
    absl::MutexLock lock(&mutex_);
    LiveJob* live = jobs_.Find(uid);
    if (live == nullptr || live->record.processes != record) continue;
    if (!processes.ok()) {
      // Nobody can find what a lost or unreadable record describes: it counts as gone. A
      // launcher that is away for a moment is asked again.
      const absl::Status& status = processes.status();
      if (!absl::IsDataLoss(status) && !absl::IsInvalidArgument(status) && !absl::IsNotFound(status))
        continue;
      processes = std::vector<ProcessState>(live->workers.size());
      for (size_t rank = 0; rank < processes->size(); ++rank)
        (*processes)[rank].rank = static_cast<int>(rank);
    }
    NoteProcesses(*live, *processes, Now());
  }
}

std::vector<job::Claim> ControllerLoop::Claims() const {
  std::vector<job::Claim> claims;
  for (const auto& [uid, live] : jobs_.awake()) {
    job::Claim& claim = claims.emplace_back();
    claim.id = uid;
    const JobKey key = live->key();
    claim.name = key.ns == "default" ? key.name : absl::StrCat(key.ns, "/", key.name);
    claim.priority = live->record.job.spec().priority();
    claim.created = FromProto(live->record.job.create_time());
    claim.demand = live->claim;
    claim.resident = ResidentBytes(*live, options_);
    claim.waiting_since = live->notes.queued_at;
    claim.holds = job::HoldsCapacity(live->state());
    claim.waits = WaitsForCapacity(*live);
  }
  return claims;
}

std::vector<ControllerLoop::Effect> ControllerLoop::Decide(absl::Time now) {
  const auto& awake = jobs_.awake();
  std::map<std::string, job::NodeMemory> memory;
  if (std::any_of(awake.begin(), awake.end(), [](const auto& job) { return LooksForNodes(*job.second); })) {
    memory = MemoryOfNodes(options_);
    if (options_.inventory) WatchNodes(memory, now);
  }
  std::map<std::string, job::Verdict> verdicts;
  // Claims are sums over all workers of all jobs: made only where a job waits.
  if (std::any_of(awake.begin(), awake.end(),
                  [](const auto& job) { return WaitsForCapacity(*job.second); })) {
    verdicts = job::Admit(Claims(), memory, now, GpuCount(options_));
  }

  std::vector<Effect> effects;
  std::vector<std::string> ended;
  for (const auto& [uid, live] : jobs_.awake()) {
    if (live->unsaved && !Write(*live, now).ok()) continue;
    if (live->changes_size()) ApplyResize(*live, now);
    job::Observed observed = ObservedOf(*live);
    if (auto verdict = verdicts.find(uid); verdict != verdicts.end()) {
      observed.admitted = verdict->second.admitted;
      observed.admission_message = verdict->second.message;
      if (!live->without_node.empty()) absl::StrAppend(&observed.admission_message, "; ", live->without_node);
    }
    Apply(*live, job::Reconcile(ViewOf(*live), observed, now), now, effects);
    if (job::IsTerminal(live->state()) && !live->unsaved) ended.push_back(uid);
  }
  for (const std::string& uid : ended) Retire(uid, now);
  return effects;
}

void ControllerLoop::FinishPass(absl::Time now) {
  for (const auto& [uid, live] : jobs_.awake()) {
    if (live->dirty && now - live->written_at >= kWriteInterval) Write(*live, now).IgnoreError();
    if (!live->changed) continue;
    live->changed = false;
    if (!watches_.Watched(live->key())) continue;
    v1::WatchTrainingJobResponse update;
    update.set_revision(live->record.revision);
    *update.mutable_training_job() = live->record.job;
    watches_.Publish(live->key(), std::move(update));
  }
  jobs_.LetRest();
  DeleteExpired(now);
}

void ControllerLoop::DeleteExpired(absl::Time now) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const auto [key, uid] = expiries_.begin()->second;
    expiries_.erase(expiries_.begin());
    auto record = store_->Get(key);
    if (!record.ok() || record->job.uid() != uid) continue;
    ForgetOrRetry(record->job, record->revision, record->job.etag(), now);
  }
}

void ControllerLoop::FlushOutbox() {
  std::vector<absl::AnyInvocable<void()>> outbox;
  {
    absl::MutexLock lock(&mutex_);
    outbox.swap(outbox_);
  }
  for (auto& send : outbox) send();
}

void ControllerLoop::EmptyTrash() {
  std::vector<std::string> trash;
  {
    absl::MutexLock lock(&mutex_);
    trash.swap(trash_);
  }
  for (const std::string& run_directory : trash) RemoveRunDirectory(run_directory);
}

void ControllerLoop::BoundLogs(absl::Time now) {
  if (now - logs_bounded_at_ < kLogCheckInterval) return;
  logs_bounded_at_ = now;
  std::vector<std::string> logs;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [uid, live] : jobs_.awake()) {
      for (size_t rank = 0; live->status().epoch() > 0 && rank < live->workers.size(); ++rank) {
        logs.push_back(
            absl::StrCat(RunDirectory(uid), "/logs/epoch-", live->status().epoch(), "-rank-", rank, ".log"));
      }
    }
  }
  for (const std::string& log : logs) BoundLog(log, kMaxLogBytes);
}

void ControllerLoop::Perform(const Effect& effect) {
  using Kind = job::Action::Kind;
  switch (effect.action.kind) {
    case Kind::kPlan:
      PerformPlan(effect.uid);
      break;
    case Kind::kLaunch:
      PerformLaunch(effect.uid, effect.action.epoch);
      break;
    case Kind::kTerminate:
    case Kind::kKill: {
      const bool kill = effect.action.kind == Kind::kKill;
      if (effect.processes.empty() && !kill) break;
      const absl::Status status = effect.processes.empty()
                                      ? launcher_->KillUnrecorded(effect.uid, effect.action.epoch)
                                      : launcher_->Stop(effect.processes, kill);
      if (!status.ok())
        spdlog::error("event=stop_failed job_uid={} error=\"{}\"", effect.uid, status.ToString());
      absl::MutexLock lock(&mutex_);
      Wake();  // to see them gone
      break;
    }
    case Kind::kAskStop:
    case Kind::kScheduleRetry:
    case Kind::kRelease:
      break;  // done with the decision itself
  }
}

void ControllerLoop::PerformLaunch(const std::string& uid, int epoch) {
  LaunchRequest request;
  {
    absl::MutexLock lock(&mutex_);
    const LiveJob* found = jobs_.Find(uid);
    if (found == nullptr) return;
    const LiveJob& live = *found;
    request.job_name = live.record.job.name();
    request.job_uid = uid;
    request.epoch = epoch;
    request.world_size = static_cast<int>(live.workers.size());
    request.run_directory = RunDirectory(uid);
    request.scheduler = options_.scheduler_address;
    if (options_.group_tokens) request.token_file = WorkerTokenPath(request.run_directory, epoch);
    const int threads = live.record.job.spec().resources().cpu_threads();
    request.cpu_threads = threads > 0 ? threads : std::max(1, options_.cores / request.world_size);
    AddNeeds(live.plan, live.record.job.spec(), request);
  }
  std::error_code ignored;  // what fails is said by what is written
  std::filesystem::create_directories(request.run_directory, ignored);
  const absl::Status token =
      options_.group_tokens ? EnsureWorkerToken(request.run_directory, epoch) : absl::OkStatus();
  absl::StatusOr<std::string> processes = token.ok() ? launcher_->Launch(request) : token;

  absl::MutexLock lock(&mutex_);
  const absl::Time now = Now();
  LiveJob& live = *jobs_.Find(uid);  // only this thread removes jobs or changes epochs
  if (processes.ok()) {
    live.record.processes = *std::move(processes);
    live.launched_at = now;
    for (LiveWorker& worker : live.workers) {
      worker.seen.running = true;
      live.status().mutable_workers(worker.seen.rank)->set_state("Starting");
    }
    if (!live.status().has_start_time()) SetTime(now, live.status().mutable_start_time());
    Event(live, false, "WorkersStarted",
          absl::StrCat("started ", request.world_size, " workers, epoch ", epoch), now);
  } else {
    live.launch_error = absl::StrCat("the workers could not be started: ", processes.status().message());
    live.launch_error_final = CanNeverWork(processes.status());
  }
  live.Touch();
  live.unsaved = !Write(live, now).ok();
  Wake();
}

std::unique_ptr<Controller> MakeController(const ControllerOptions& options, JobStore* store,
                                           Launcher* launcher, ModelDescriber* describer,
                                           ControllerMetrics* metrics) {
  return std::make_unique<ControllerLoop>(options, store, launcher, describer, metrics);
}

}  // namespace tessera::scheduler

#include "scheduler/launch/local_launcher.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/launch/gpu_slots.h"
#include "scheduler/launch/launch_record.h"
#include "scheduler/launch/worker_program.h"

namespace tessera::scheduler {
namespace {

constexpr size_t kKnownRecords = 256;

class LocalLauncher : public Launcher {
 public:
  explicit LocalLauncher(const LocalLauncherOptions& options) : options_(options), boot_id_(BootId()) {}

  absl::StatusOr<std::string> Launch(const LaunchRequest& request) override {
    absl::MutexLock lock(&mutex_);
    TESSERA_ASSIGN_OR_RETURN(const std::string program, FindWorkerProgram(options_.worker_program));
    std::error_code error;
    std::filesystem::create_directories(request.run_directory + "/logs", error);
    if (error) {
      return absl::FailedPreconditionError(
          absl::StrCat("creating '", request.run_directory, "/logs': ", error.message()));
    }
    if (auto earlier = LoadLaunchRecord(request.run_directory, request.epoch);
        earlier.ok() && earlier->job_uid == request.job_uid) {
      if (static_cast<int>(earlier->workers.size()) == request.world_size) return Encode(*earlier);
      End(*earlier);  // the scheduler died between two ranks
    }
    EndUnrecorded(request.job_uid, request.epoch);
    std::string gpus;
    if (request.gpus > 0 && !options_.gpus.empty()) {
      const auto wanted = std::min(request.world_size, static_cast<int>(options_.gpus.size()));
      TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> free, FreeGpus(options_.gpus, wanted));
      gpus = absl::StrJoin(free, ",");
    }
    LaunchRecord record{request.job_uid, request.epoch, request.world_size, options_.node, boot_id_, {}};
    for (int rank = 0; rank < request.world_size; ++rank) {
      absl::Status started = StartRank(request, program, gpus, rank, record);
      if (!started.ok()) {
        End(record);
        return started;
      }
    }
    return Encode(record);
  }

  absl::StatusOr<std::vector<ProcessState>> Observe(const std::string& text) override {
    absl::MutexLock lock(&mutex_);
    auto known = known_.find(text);
    if (known == known_.end()) {
      TESSERA_ASSIGN_OR_RETURN(LaunchRecord decoded, DecodeLaunchRecord(text));
      if (known_.size() >= kKnownRecords) known_.clear();
      known = known_.emplace(text, Known{.record = std::move(decoded)}).first;
    }
    const LaunchRecord& record = known->second.record;
    std::vector<ProcessState>& alive = known->second.alive;
    const bool quiet = NoChildHasNews();
    if (quiet && !alive.empty() && known->second.lost == lost_) return alive;
    bool all_run = quiet && record.boot_id == boot_id_;
    std::vector<ProcessState> states;
    states.reserve(record.workers.size());
    for (size_t rank = 0; rank < record.workers.size(); ++rank) {
      ProcessState state;
      state.rank = static_cast<int>(rank);
      state.pid = record.workers[rank].pid;
      state.node = record.node;
      const ProcessIdentity& worker = record.workers[rank];
      if (quiet && record.boot_id == boot_id_ && children_.contains({worker.pid, worker.start})) {
        state.running = true;
      } else {
        Look(record, worker, state);
        all_run = false;
      }
      states.push_back(std::move(state));
    }
    alive = all_run ? states : std::vector<ProcessState>();
    known->second.lost = lost_;
    return states;
  }

  absl::Status Stop(const std::string& text, bool kill) override {
    TESSERA_ASSIGN_OR_RETURN(const LaunchRecord record, DecodeLaunchRecord(text));
    absl::MutexLock lock(&mutex_);
    if (record.boot_id != boot_id_) return absl::OkStatus();
    for (const ProcessIdentity& worker : record.workers) {
      if (!IsAlive(worker)) continue;
      ::kill(kill ? -worker.pid : worker.pid, kill ? SIGKILL : SIGTERM);
    }
    return absl::OkStatus();
  }

  absl::Status KillUnrecorded(const std::string& job_uid, int epoch) override {
    absl::MutexLock lock(&mutex_);
    EndUnrecorded(job_uid, epoch);
    return absl::OkStatus();
  }

 private:
  using Identity = std::pair<pid_t, int64_t>;

  // Records are observed several times a second.
  struct Known {
    LaunchRecord record;
    std::vector<ProcessState> alive = {};  // what Observe says while all are our children and run; else empty
    int64_t lost = 0;                      // lost_ when that was found
  };

  absl::Status StartRank(const LaunchRequest& request, const std::string& program, const std::string& gpus,
                         int rank, LaunchRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ProcessRequest process;
    process.arguments = {program};
    process.arguments.insert(process.arguments.end(), options_.arguments.begin(), options_.arguments.end());
    process.env["OMP_NUM_THREADS"] = process.env["MKL_NUM_THREADS"] = absl::StrCat(request.cpu_threads);
    // Ranks share the cores: a thread that spins while it waits takes them from another rank.
    process.env["OMP_WAIT_POLICY"] = "passive";
    for (const auto& [name, value] : request.env) process.env[name] = value;
    if (!gpus.empty()) process.env["CUDA_VISIBLE_DEVICES"] = process.env[kGpusVariable] = gpus;
    process.env["TESSERA_SCHEDULER"] = request.scheduler;
    process.env["TESSERA_JOB"] = request.job_uid;
    process.env["TESSERA_EPOCH"] = absl::StrCat(request.epoch);
    process.env["TESSERA_RANK"] = absl::StrCat(rank);
    process.env["TESSERA_TOKEN_FILE"] = request.token_file;
    const std::string log =
        absl::StrCat(request.run_directory, "/logs/epoch-", request.epoch, "-rank-", rank, ".log");
    auto pid = StartLogged(process, log);
    if (!pid.ok()) return pid.status();
    AwaitEnvironment(*pid);  // other launchers look there for the GPUs that it owns
    // Even if it has ended already it is a zombie of ours, and so still there.
    const auto identity = IdentityOf(*pid);
    if (!identity.has_value()) return absl::InternalError(absl::StrCat("process ", *pid, " vanished"));
    record.workers.push_back(*identity);
    children_.insert({identity->pid, identity->start});
    spdlog::info("event=worker_started job={} epoch={} rank={} pid={} gpus={}", request.job_name,
                 request.epoch, rank, *pid, gpus.empty() ? "-" : gpus);
    return Save(request.run_directory, record);
  }

  // Kills and reaps. Only for processes that just started or belong to a failed launch.
  void End(const LaunchRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (record.boot_id != boot_id_) return;
    for (const ProcessIdentity& worker : record.workers) {
      if (!IsAlive(worker)) continue;
      ::kill(-worker.pid, SIGKILL);
      ::waitpid(worker.pid, nullptr, 0);  // returns at once for those that are not our children
      Forget({worker.pid, worker.start});
    }
  }

  // A worker started just before the scheduler died stands in no record, but in the process table: it
  // would greet beside the one that takes its rank.
  void EndUnrecorded(const std::string& job_uid, int epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const ProcessIdentity& stray :
         ProcessesWith({"TESSERA_JOB=" + job_uid, absl::StrCat("TESSERA_EPOCH=", epoch)})) {
      if (stray.pid == ::getpid() || !IsAlive(stray)) continue;
      spdlog::warn("event=stray_worker_killed job_uid={} epoch={} pid={}", job_uid, epoch, stray.pid);
      ::kill(stray.pid, SIGKILL);
      ::waitpid(stray.pid, nullptr, 0);  // returns at once for those that are not our children
      Forget({stray.pid, stray.start});
    }
  }

  // One call for all children, of which there may be a thousand: true when each of them runs. One that has
  // stopped or ended is told of again until it goes on or is reaped.
  static bool NoChildHasNews() {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
  }

  void Look(const LaunchRecord& record, const ProcessIdentity& worker, ProcessState& state)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (record.boot_id != boot_id_) return;
    const Identity key{worker.pid, worker.start};
    if (auto seen = exits_.find(key); seen != exits_.end()) {
      Describe(seen->second, state);
      return;
    }
    if (children_.contains(key) && LookAtChild(key, state)) return;
    const auto now = StatOf(worker.pid);
    if (!now.has_value() || now->start != worker.start) return;  // gone, and nobody knows how
    if (LookAtChild(key, state)) {
      if (state.running) children_.insert(key);
    } else {
      state.running = !now->zombie;
      state.halted = now->halted;
    }
  }

  // Asks the kernel about a child of ours, whose pid nobody else has before we reap it: one call instead of
  // a file of /proc. False: it is not our child.
  bool LookAtChild(const Identity& key, ProcessState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const pid_t pid = key.first;
    siginfo_t info{};
    // WNOWAIT leaves a stop to be seen again, and the zombie, whose pid nobody else can get while its group
    // is ended.
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) != 0) {
      Forget(key);
      return false;
    }
    // A child that is not to be waited for yet lives, even where its main thread is a zombie already: its
    // other threads still end, or its core is being written.
    state.halted = info.si_pid == pid && (info.si_code == CLD_STOPPED || info.si_code == CLD_TRAPPED);
    state.running = info.si_pid != pid || state.halted;
    if (state.running) return true;
    ::kill(-pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    exits_[key] = status;
    Forget(key);
    Describe(status, state);
    return true;
  }

  void Forget(const Identity& child) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (children_.erase(child) > 0) ++lost_;
  }

  static void Describe(int status, ProcessState& state) {
    state.exit_known = true;
    state.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    state.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  const LocalLauncherOptions options_;
  const std::string boot_id_;
  absl::Mutex mutex_;
  std::set<Identity> children_ ABSL_GUARDED_BY(mutex_);    // started by us and not reaped
  std::map<Identity, int> exits_ ABSL_GUARDED_BY(mutex_);  // wait statuses of reaped children
  int64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;               // children that have left children_ so far
  std::unordered_map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Launcher> MakeLocalLauncher(const LocalLauncherOptions& options) {
  return std::make_unique<LocalLauncher>(options);
}

}  // namespace tessera::scheduler

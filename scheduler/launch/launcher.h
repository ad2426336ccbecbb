// Starts, finds again and ends the workers of a job. Implementations: local
// processes, Kubernetes Jobs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tessera/v1/job.pb.h"
#include "tessera/v1/plan.pb.h"

namespace tessera::scheduler {

// What a worker needs to know to reach its scheduler; the rest comes with its Assignment.
struct LaunchRequest {
  std::string job_name;
  std::string job_uid;
  int epoch = 0;
  int world_size = 0;
  std::string run_directory;  // logs go to <run_directory>/logs/epoch-<e>-rank-<r>.log
  std::string scheduler;      // "[https://]host:port" or "file:<endpoint file>", re-read on each connect
  std::string token_file;     // 0600, the workers' token for this job and epoch; empty: the launcher has one
  int cpu_threads = 1;
  int64_t memory_bytes = 0;        // the plan's peak of the largest worker; 0 = unknown
  int64_t least_memory_bytes = 0;  // of the smallest one
  int64_t least_limit_bytes = 0;   // the smallest of what the nodes offered a worker; 0 = unknown
  int64_t process_bytes = 0;       // of a worker's process beside its peak; 0 = unknown
  std::string queue;               // that the job names; may be empty
  int gpus = 0;                    // per worker
  std::vector<std::string>
      nodes;  // by rank, that the plan was made for; a launcher of one machine ignores them
  std::map<std::string, std::string> env;
  std::vector<std::string> reads;   // folders that the job names: data, weights, a checkpoint to resume from
  std::vector<std::string> writes;  // beside the run directory
};

struct ProcessState {
  int rank = 0;
  int64_t pid = 0;
  std::string node;
  std::string pod;    // empty: a process of this machine
  std::string waits;  // why it can't start yet; empty: it runs, or nobody knows
  bool running = false;
  bool halted = false;  // runs, but is stopped by a signal: it computes nothing until it is continued
  // Valid when not running; exit_known is false for one that was adopted and
  // whose exit status went to another parent.
  bool exit_known = false;
  int exit_code = 0;  // 128 + n: killed by signal n
  int signal = 0;
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  // Starts world_size workers, all or none. Returns an opaque record that is stored
  // with the job and by which Observe and Stop find the processes again, also after
  // a restart of the scheduler. Idempotent per (uid, epoch).
  virtual absl::StatusOr<std::string> Launch(const LaunchRequest& request) = 0;
  virtual absl::StatusOr<std::vector<ProcessState>> Observe(const std::string& record) = 0;
  // Asks the workers to end; kill: now. Never an error when they are gone already.
  virtual absl::Status Stop(const std::string& record, bool kill) = 0;
  // Kills what an interrupted Launch may have started without its record being stored.
  virtual absl::Status KillUnrecorded(const std::string& job_uid, int epoch) = 0;
};

// Asks the worker program for a model's shape and measured activations at a micro-batch.
class ModelDescriber {
 public:
  virtual ~ModelDescriber() = default;
  virtual absl::StatusOr<v1::ModelShape> Describe(const v1::TrainingJobSpec& spec) = 0;
  // Ends what runs; that and later calls that would run something are Cancelled. Any thread.
  virtual void Stop() = 0;
};

}  // namespace tessera::scheduler

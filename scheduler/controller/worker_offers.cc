#include "scheduler/controller/worker_offers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/quantity.h"
#include "scheduler/job/admission.h"
#include "scheduler/plan/node_choice.h"
#include "scheduler/plan/process.h"

namespace tessera::scheduler {
namespace {

constexpr double kNodeReserve = 0.1;  // share of a node's free memory that is left to others

struct Worker {
  int64_t limit_bytes = 0;  // 0 = unknown, as all others
  double speed = 1;
  double cores = 0;
  double bytes_per_second = 0;
};

double CoresOf(const v1::TrainingJobSpec& spec, double share) {
  const int threads = spec.resources().cpu_threads();
  if (threads > 0) return std::min<double>(threads, share);
  return share >= 1 ? std::floor(share) : share;  // as many threads as whole cores
}

// What a worker of a job takes of the memory that its tensors live in, beside them.
struct Process {
  int64_t bytes = job::kWorkerBaseBytes;  // however many tensors it has
  std::optional<double> slack = {};       // of the heap, where that was measured
};

// With as many communicators as a plan may ask for.
Process ProcessOf(const v1::TrainingJobSpec& spec, const v1::ProcessMemory& measured) {
  if (measured.base_bytes() <= 0) return {};
  constexpr int64_t kMostSets = 64;  // as the placement has them
  const int64_t sets =
      spec.workers().count() > 1 ? std::min<int64_t>(spec.workers().count(), kMostSets) + 1 : 0;
  const bool weights = spec.sharding() == v1::SHARDING_FSDP;
  return {
      measured.base_bytes() + plan::kClientBytes + (weights ? 2 : 1) * sets * measured.communicator_bytes(),
      measured.slack_ratio()};
}

// What a process of `workers` that share `bytes` has for its tensors.
absl::StatusOr<int64_t> TensorBytes(int64_t bytes, int64_t workers, const Process& process,
                                    const std::string& where) {
  const int64_t share = bytes / workers;
  if (share > process.bytes) {
    const int64_t left = share - process.bytes;
    return process.slack.has_value() ? plan::TensorsIn(*process.slack, left) : left;
  }
  const int64_t most = (bytes - 1) / process.bytes;
  return absl::ResourceExhaustedError(absl::StrCat(
      "the job does not fit: ", where, " has ", spec::FormatBytes(bytes), " for jobs, ",
      spec::FormatBytes(share), " for each of ", workers, " workers, and a worker's process takes ",
      spec::FormatBytes(process.bytes), " before it holds a tensor; ",
      most > 0 ? absl::StrCat("use at most ", most, " workers there, or more memory")
               : std::string("more memory is needed")));
}

// By rank, what the job itself says.
std::vector<Worker> Asked(const v1::TrainingJobSpec& spec) {
  std::vector<Worker> workers(static_cast<size_t>(std::max(1, spec.workers().count())));
  for (Worker& worker : workers) worker.limit_bytes = spec.resources().memory_limit_bytes();
  double slowest = 0;
  for (const v1::WorkerResources& listed : spec.resources().per_worker()) {
    if (slowest == 0 || listed.flops_per_second() < slowest) slowest = listed.flops_per_second();
  }
  for (int w = 0; w < spec.resources().per_worker_size(); ++w) {
    const v1::WorkerResources& listed = spec.resources().per_worker(w);
    workers[w].limit_bytes = listed.memory_limit_bytes();
    workers[w].speed = slowest > 0 ? listed.flops_per_second() / slowest : listed.speed();
    workers[w].bytes_per_second = static_cast<double>(listed.bandwidth_bytes_per_second());
  }
  return workers;
}

// On one machine: those without a limit get an equal share, and all together no more than there is.
absl::Status ShareMachine(const ControllerOptions& options, const Process& process,
                          std::vector<Worker>& workers) {
  if (options.memory_bytes <= 0) return absl::OkStatus();
  const auto count = static_cast<int64_t>(workers.size());
  TESSERA_ASSIGN_OR_RETURN(const int64_t share,
                           TensorBytes(options.memory_bytes, count, process, "the machine"));
  double asked = 0;
  for (Worker& worker : workers) {
    if (worker.limit_bytes <= 0) worker.limit_bytes = share;
    asked += static_cast<double>(worker.limit_bytes);
  }
  const double room = static_cast<double>(share) * static_cast<double>(count);
  if (asked <= room) return absl::OkStatus();
  for (Worker& worker : workers) {
    worker.limit_bytes =
        std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(worker.limit_bytes) * (room / asked)));
  }
  return absl::OkStatus();
}

// Each worker gets a GPU, or its part of one; a tenth, NCCL's and CUDA's, is left.
void ShareGpus(const ControllerOptions& options, std::vector<Worker>& workers) {
  if (options.gpu_bytes.empty()) return;
  const int64_t least = *std::min_element(options.gpu_bytes.begin(), options.gpu_bytes.end());
  const size_t sharing = (workers.size() + options.gpu_bytes.size() - 1) / options.gpu_bytes.size();
  const int64_t share = (least - least / 10) / static_cast<int64_t>(sharing);
  for (Worker& worker : workers) {
    if (worker.limit_bytes <= 0 || (share > 0 && worker.limit_bytes > share)) worker.limit_bytes = share;
  }
}

struct Cluster {
  std::vector<plan::NodeOffer> nodes;
  std::vector<plan::NodeLink> links;
};

double LesserKnown(double a, double b) { return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b); }

// What is stale is not planned by.
Cluster ClusterOf(const NodeInventory& inventory) {
  Cluster cluster;
  std::map<std::string, int> places;
  for (const v1::NodeProfile& node : inventory.nodes) {
    if (node.stale() || node.devices().empty()) continue;
    places[node.name()] = static_cast<int>(cluster.nodes.size());
    const v1::DeviceProfile& cpu = node.devices(0);
    cluster.nodes.push_back(
        {.name = node.name(),
         .free_bytes = static_cast<int64_t>(static_cast<double>(cpu.free_bytes()) * (1 - kNodeReserve)),
         .cores = static_cast<double>(cpu.cores())});
  }
  for (const v1::LinkProfile& link : inventory.links) {
    const auto a = places.find(link.node());
    const auto b = places.find(link.peer());
    if (link.stale() || a == places.end() || b == places.end()) continue;
    cluster.links.push_back({.a = a->second,
                             .b = b->second,
                             .round_trip_seconds = link.round_trip_seconds(),
                             .bytes_per_second = LesserKnown(link.bandwidth_bytes_per_second(),
                                                             link.receive_bandwidth_bytes_per_second())});
  }
  return cluster;
}

absl::Status SpreadOverNodes(const v1::TrainingJobSpec& spec, const NodeInventory& inventory,
                             const Process& process, std::vector<Worker>& workers, WorkerOffers& offers) {
  const Cluster cluster = ClusterOf(inventory);
  if (cluster.nodes.empty()) {
    return absl::UnavailableError(
        "no node has reported lately; start `tessera-agent run` on the nodes, or look at `tessera nodes`");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<plan::RankPlace> places,
                           plan::ChooseNodes(cluster.nodes, cluster.links, static_cast<int>(workers.size())));
  std::set<std::string> used;
  for (size_t w = 0; w < workers.size(); ++w) {
    const plan::RankPlace& place = places[w];
    const std::string& name = cluster.nodes[place.node].name;
    offers.nodes.push_back(name);
    used.insert(name);
    workers[w].cores = place.cores > 0 ? CoresOf(spec, place.cores) : 0;
    if (workers[w].bytes_per_second <= 0) workers[w].bytes_per_second = place.bytes_per_second;
    if (place.free_bytes <= 0) continue;
    TESSERA_ASSIGN_OR_RETURN(
        const int64_t share,
        TensorBytes(place.free_bytes, 1, process, absl::StrCat("a worker's part of node ", name)));
    workers[w].limit_bytes = workers[w].limit_bytes > 0 ? std::min(workers[w].limit_bytes, share) : share;
  }
  for (const v1::LinkProfile& link : inventory.links) {
    if (!link.stale() && used.contains(link.node()) && used.contains(link.peer()))
      offers.links.push_back(link);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerOffers> OffersTo(const v1::TrainingJobSpec& spec, const ControllerOptions& options,
                                      const v1::ProcessMemory& measured) {
  const int listed = spec.resources().per_worker_size();
  if (listed != 0 && listed != spec.workers().count()) {
    return absl::InvalidArgumentError(absl::StrCat("spec.resources.perWorker: has ", listed, " entries for ",
                                                   spec.workers().count(),
                                                   " workers; give one per worker, or none"));
  }
  const Process process = ProcessOf(spec, measured);
  WorkerOffers offers;
  std::vector<Worker> workers = Asked(spec);
  if (options.inventory) {
    TESSERA_RETURN_IF_ERROR(SpreadOverNodes(spec, options.inventory(), process, workers, offers));
  } else {
    if (spec.resources().gpus() > 0) {
      ShareGpus(options, workers);
    } else {
      TESSERA_RETURN_IF_ERROR(ShareMachine(options, process, workers));
    }
    offers.nodes.assign(workers.size(), options.node);
    const double share = static_cast<double>(options.cores) / static_cast<double>(workers.size());
    for (Worker& worker : workers) worker.cores = CoresOf(spec, share);
  }
  for (const Worker& worker : workers) {
    if (worker.cores > 0 && (offers.cores == 0 || worker.cores < offers.cores)) offers.cores = worker.cores;
  }
  for (const v1::WorkerResources& worker : spec.resources().per_worker()) {
    const double flops = worker.flops_per_second();
    if (flops > 0 && (offers.flops_per_second == 0 || flops < offers.flops_per_second))
      offers.flops_per_second = flops;
  }
  bool alike = true;
  for (const Worker& worker : workers) {
    // A stated rate of computing has the cores in it.
    const bool by_cores = offers.flops_per_second == 0 && offers.cores > 0 && worker.cores > 0;
    offers.capacities.push_back(
        {.usable_bytes = worker.limit_bytes,
         .relative_speed = worker.speed * (by_cores ? worker.cores / offers.cores : 1),
         .bytes_per_second = worker.bytes_per_second});
    const plan::WorkerCapacity& first = offers.capacities.front();
    const plan::WorkerCapacity& own = offers.capacities.back();
    alike &= own.usable_bytes == first.usable_bytes && own.relative_speed == first.relative_speed &&
             own.bytes_per_second == first.bytes_per_second;
  }
  if (alike) {
    offers.limit_bytes = offers.capacities.front().usable_bytes;
    offers.bytes_per_second = offers.capacities.front().bytes_per_second;
    offers.capacities.clear();
  }
  return offers;
}

std::map<std::string, job::NodeMemory> MemoryOfNodes(const ControllerOptions& options) {
  std::map<std::string, job::NodeMemory> memory;
  if (!options.inventory) {
    memory[options.node] = {.for_jobs = options.memory_bytes,
                            .available = options.available_bytes ? options.available_bytes() : -1};
    return memory;
  }
  if (options.memory_bytes > 0) memory[""].for_jobs = options.memory_bytes;
  for (const v1::NodeProfile& node : options.inventory().nodes) {
    if (node.stale() || node.devices().empty()) continue;
    const v1::DeviceProfile& cpu = node.devices(0);
    memory[node.name()] = {
        .for_jobs = static_cast<int64_t>(static_cast<double>(cpu.total_bytes()) * (1 - kNodeReserve)),
        .available = cpu.free_bytes() > 0 ? cpu.free_bytes() : -1};
  }
  return memory;
}

int GpuCount(const ControllerOptions& options) { return static_cast<int>(options.gpu_bytes.size()); }

void AddAt(const ControllerOptions& options, const std::string& node, int64_t bytes, job::NodeBytes* sum) {
  (*sum)[options.inventory ? node : options.node] += bytes;
  if (options.inventory && options.memory_bytes > 0) (*sum)[""] += bytes;
}

}  // namespace tessera::scheduler

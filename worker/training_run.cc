#include "worker/training_run.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "scheduler/wire/plan_wire.h"
#include "worker/comm/gloo_world.h"
#include "worker/comm/staged_world.h"
#include "worker/control/control_client.h"
#include "worker/control/endpoint.h"
#include "worker/control/job_options.h"
#include "worker/control/scheduler_rendezvous.h"
#include "worker/control/scheduler_sink.h"
#include "worker/control/standstill_watch.h"
#include "worker/device/gpu_choice.h"
#include "worker/eval/export_model.h"
#include "worker/eval/job_data.h"
#include "worker/eval/job_model.h"
#include "worker/nn/device_softmax.h"
#include "worker/profile/allocator_profile.h"
#include "worker/profile/memory_counter.h"
#include "worker/train/event_file.h"
#include "worker/train/metrics_log.h"
#include "worker/train/text_log.h"
#include "worker/train/worker_metrics.h"

namespace tessera::worker {
namespace {

constexpr absl::Duration kAssignmentTimeout = absl::Seconds(120);

absl::StatusOr<std::string> Required(const Variable& variable, const char* name) {
  const char* value = variable(name);
  if (value == nullptr || *value == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        name,
        " is not set; without a sub-command this program is started by a Tessera scheduler (see --help)"));
  }
  return std::string(value);
}

absl::StatusOr<int> RequiredNumber(const Variable& variable, const char* name) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, Required(variable, name));
  int value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, "='", text, "' is no number from 0"));
  }
  return value;
}

std::string HostName() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

// Unavailable and ResourceExhausted stand for a lost peer and for memory, which other workers or another
// place can mend. A file that can't be read or written is neither, whatever its reader calls it.
absl::Status OfFiles(const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsResourceExhausted(status)) return status;
  return absl::FailedPreconditionError(status.message());
}

// One worker's run; a member lives as long as those after it need it.
class TrainingRun {
 public:
  TrainingRun(const LaunchEnvironment& environment, TrainerSignals* signals)
      : environment_(environment), signals_(signals) {}

  ExitCode Run() {
    if (absl::Status status = Connect(); !status.ok()) {
      spdlog::error("no assignment rank={} error=\"{}\"", environment_.rank, std::string(status.message()));
      return ExitCodeOf(OutcomeOf(status));
    }
    v1::Finished finished;
    const absl::StatusOr<TrainingResult> result = Train();
    if (result.ok()) {
      finished.set_outcome(result->stopped ? v1::WORKER_OUTCOME_STOPPED : v1::WORKER_OUTCOME_COMPLETED);
      finished.set_step(result->step);
      finished.set_exported_model(exported_);
    } else {
      finished.set_outcome(OutcomeOf(result.status()));
      finished.set_error(std::string(result.status().message()));
      finished.set_step(trainer_ != nullptr ? trainer_->step() : 0);
      spdlog::error("training failed job={} epoch={} rank={} step={} error=\"{}\"", assignment_.job_name(),
                    environment_.epoch, environment_.rank, finished.step(), finished.error());
    }
    // Peers notice a closed connection at once, while the scheduler that is told may be gone. On a thread
    // of its own, as closing waits for collectives under way.
    std::thread closing([this, failed = !result.ok()] {
      if (failed) Disconnect();
    });
    spdlog::info("event=ended job={} epoch={} rank={} step={} outcome={}", assignment_.job_name(),
                 environment_.epoch, environment_.rank, finished.step(),
                 v1::WorkerOutcome_Name(finished.outcome()));
    if (absl::Status status = client_->Finish(finished); !status.ok()) {
      spdlog::error("end not reported rank={} error=\"{}\"", environment_.rank,
                    std::string(status.message()));
    }
    closing.join();
    return ExitCodeOf(finished.outcome());
  }

 private:
  void Disconnect() {
    watch_.reset();
    trainer_.reset();
    world_.reset();
  }

  absl::Status Connect() {
    ControlOptions options;
    options.scheduler = environment_.scheduler;
    options.token_file = environment_.token_file;
    options.ca_file = environment_.ca_file;
    options.identity.set_job_uid(environment_.job_uid);
    options.identity.set_epoch(environment_.epoch);
    options.identity.set_rank(environment_.rank);
    options.identity.set_pid(::getpid());
    options.identity.set_node(environment_.node);
    TESSERA_ASSIGN_OR_RETURN(metrics_, WorkerMetrics::Serve(environment_.metrics_address));
    options.metrics_address = metrics_->address();
    options.confirmation = environment_.confirmation;
    client_ = ControlClient::Start(options, Handlers());
    TESSERA_ASSIGN_OR_RETURN(assignment_, client_->WaitForAssignment(kAssignmentTimeout));
    signals_->plan_generation = assignment_.plan().generation();
    mask_fingerprint_ = assignment_.plan().mask_fingerprint();
    started_client_ = client_.get();
    return absl::OkStatus();
  }

  ControlHandlers Handlers() {
    ControlHandlers handlers;
    TrainerSignals* signals = signals_;
    handlers.stop = [signals](const v1::Stop& stop) {
      if (!stop.checkpoint()) signals->fenced = true;
      signals->stop = true;
    };
    handlers.checkpoint = [signals] { signals->checkpoint = true; };
    handlers.statistics = [signals] { signals->statistics = true; };
    handlers.plan = [this](const v1::Plan& plan) { HoldPlan(plan); };
    handlers.scheduler_lost = [signals] {
      spdlog::error("scheduler is gone for too long, ending with a checkpoint");
      signals->stop = true;
    };
    return handlers;
  }

  // Holds new budgets until all ranks do. What is not acknowledged never becomes active.
  void HoldPlan(const v1::Plan& plan) {
    ControlClient* client = started_client_.load();
    if (client == nullptr || plan.generation() < signals_->plan_generation) return;
    const v1::DroppingPlan& dropping = plan.dropping();
    if (plan.epoch() != environment_.epoch || dropping.mode() != v1::DROPPING_MODE_ENFORCE ||
        dropping.kept_size() == 0 || plan.mask_fingerprint() != mask_fingerprint_.load()) {
      spdlog::warn("new plan ignored generation={} reason=\"only gradient budgets can change\"",
                   plan.generation());
      return;
    }
    if (plan.generation() > signals_->plan_generation) {  // else it was acknowledged on a stream that broke
      signals_->budgets.Put(plan.generation(), {dropping.kept().begin(), dropping.kept().end()});
      signals_->plan_generation = plan.generation();
    }
    v1::WorkerUp up;
    up.mutable_plan_acknowledged()->set_generation(plan.generation());
    client->Send(up);
  }

  absl::StatusOr<TrainingResult> Train() {
    TESSERA_RETURN_IF_ERROR(OfFiles(LoadJob()));
    TESSERA_RETURN_IF_ERROR(JoinWorld());
    TESSERA_RETURN_IF_ERROR(OfFiles(OpenReports()));
    const TrainerContext context{model_.get(),      &plan_,    world_.get(), train_.get(),
                                 validation_.get(), &reports_, signals_,     gpu_};
    TESSERA_ASSIGN_OR_RETURN(trainer_, Trainer::Create(options_, context));
    TESSERA_RETURN_IF_ERROR(OfFiles(OpenLogs(trainer_->step())));
    TESSERA_ASSIGN_OR_RETURN(const TrainingResult result, trainer_->Run());
    if (!result.stopped) TESSERA_RETURN_IF_ERROR(Export(result));
    return result;
  }

  absl::Status LoadJob() {
    const v1::TrainingJobSpec& spec = assignment_.spec();
    TESSERA_RETURN_IF_ERROR(CheckSupported(spec));
    if (assignment_.rank() != environment_.rank || assignment_.epoch() != environment_.epoch) {
      return absl::FailedPreconditionError("the assignment is for another rank or epoch");
    }
    TESSERA_ASSIGN_OR_RETURN(model_, MakeJobModel(spec));
    TESSERA_ASSIGN_OR_RETURN(plan_, wire::RecomputeMaskPlan(model_->shape(), assignment_.plan()));
    TESSERA_ASSIGN_OR_RETURN(JobData data, OpenJobData(spec, model_->input()));
    train_ = std::move(data.train);
    validation_ = std::move(data.validation);
    TESSERA_ASSIGN_OR_RETURN(options_, TrainerOptionsOf(assignment_, plan_, train_->samples()));
    if (model_->input().task == Task::kTextClass) options_.targets_per_sample = 1;
    return absl::OkStatus();
  }

  absl::Status JoinWorld() {
    v1::WorkerUp phase;
    phase.mutable_phase()->set_phase(v1::WORKER_PHASE_RENDEZVOUS);
    client_->Send(phase);
    SchedulerRendezvousOptions store;
    store.scheduler = environment_.scheduler;
    store.token_file = environment_.token_file;
    store.ca_file = environment_.ca_file;
    store.job_uid = environment_.job_uid;
    store.epoch = environment_.epoch;
    rendezvous_ = MakeSchedulerRendezvous(store);
    GlooOptions gloo;
    gloo.rank = assignment_.rank();
    gloo.size = assignment_.world_size();
    gloo.bind_address = environment_.bind_address;
    gloo.rendezvous_timeout = RendezvousTimeout(assignment_.spec().deadlines());
    gloo.collective_timeout = CollectiveTimeout(assignment_.spec().deadlines());
    TESSERA_ASSIGN_OR_RETURN(const std::string address, ResolveScheduler(environment_.scheduler));
    if (gloo.bind_address.empty() && IsLoopback(address)) gloo.bind_address = "127.0.0.1";
    const bool on_gpu = assignment_.spec().resources().gpus() > 0;
    GpuChoice choice;
    if (on_gpu) {
      TESSERA_ASSIGN_OR_RETURN(choice, TakeGpu());
    }
    TESSERA_ASSIGN_OR_RETURN(world_, MakeGlooWorld(gloo, rendezvous_.get()));
    if (!on_gpu) return absl::OkStatus();
    if (choice.carrier == Carrier::kGlooOverHost) world_ = MakeStagedWorld(std::move(world_));
    if (choice.carrier != Carrier::kNccl) return absl::OkStatus();
    NcclOptions nccl;
    nccl.rank = gloo.rank;
    nccl.size = gloo.size;
    nccl.host = HostName();
    nccl.rendezvous_timeout = gloo.rendezvous_timeout;
    nccl.collective_timeout = gloo.collective_timeout;
    TESSERA_ASSIGN_OR_RETURN(world_, gpu_->MakeWorld(nccl, rendezvous_.get(), std::move(world_)));
    return absl::OkStatus();
  }

  // The plug-in is opened here, before anything asks LibTorch about CUDA.
  absl::StatusOr<GpuChoice> TakeGpu() {
    TESSERA_ASSIGN_OR_RETURN(const GpuChoice choice,
                             ChooseGpu(assignment_.spec(), FindGpus(), assignment_.rank()));
    TESSERA_ASSIGN_OR_RETURN(gpu_, OpenGpuPlugin());
    TESSERA_RETURN_IF_ERROR(gpu_->Use(choice.device));
    SetSoftmaxLossKernel(gpu_->softmax_loss());
    const std::string device = DeviceName(choice.device, std::getenv("TESSERA_GPUS"));
    ProfileDevice([gpu = gpu_, name = device] {
      const GpuMemory memory = gpu->Memory(/*blocks=*/true);
      return AllocatorStatistics{.device = name,
                                 .reserved = memory.reserved,
                                 .allocated = memory.allocated,
                                 .free = memory.reserved - memory.allocated,
                                 .largest_block = memory.largest_block,
                                 .device_total = memory.device_total,
                                 .other = memory.other()};
    });
    spdlog::info("event=device job={} epoch={} rank={} device={} gradients={}", assignment_.job_name(),
                 assignment_.epoch(), assignment_.rank(), device, CarrierName(choice.carrier));
    return choice;
  }

  absl::Status OpenReports() {
    scheduler_sink_ = std::make_unique<SchedulerSink>(client_.get());
    reports_.Add(scheduler_sink_.get());
    watch_ = StandstillWatch::Start(client_.get(), [world = world_.get()] { return world->waiting(); });
    reports_.Add(watch_.get());
    const std::string who = absl::StrCat("job=", assignment_.job_name(), " epoch=", assignment_.epoch(),
                                         " rank=", assignment_.rank());
    spdlog::info("event=joined {} workers={} resume_from={}", who, assignment_.world_size(),
                 options_.resume_from.empty() ? "none" : options_.resume_from);
    text_log_ = std::make_unique<TextLog>(who, /*speaks=*/assignment_.rank() == 0);
    reports_.Add(text_log_.get());
    WorkerMetricsOptions metrics;
    metrics.job = assignment_.job_name();
    metrics.ns = assignment_.namespace_();
    metrics.rank = assignment_.rank();
    metrics.coverage = plan_.Coverage(assignment_.rank());
    for (const v1::WorkerPlan& worker : assignment_.plan().workers()) {
      if (worker.rank() == assignment_.rank()) metrics.predicted_memory_bytes = worker.memory().peak();
    }
    for (const plan::Parameter& parameter : model_->shape().parameters) {
      metrics.parameters.emplace_back(parameter.name, parameter.elements());
    }
    metrics_->Describe(metrics);
    reports_.Add(metrics_.get());
    return absl::OkStatus();
  }

  // Once it is known where training goes on.
  absl::Status OpenLogs(int64_t resumed) {
    if (assignment_.rank() != 0 || assignment_.run_directory().empty()) return absl::OkStatus();
    const std::string& run = assignment_.run_directory();
    TESSERA_ASSIGN_OR_RETURN(log_, MetricsLog::Open(run + "/metrics.jsonl", resumed));
    TESSERA_ASSIGN_OR_RETURN(events_, EventFile::Create(run + "/tensorboard", absl::Now()));
    reports_.Add(log_.get());
    reports_.Add(events_.get());
    return absl::OkStatus();
  }

  absl::Status Export(const TrainingResult& result) {
    if (assignment_.rank() != 0 || result.checkpoint.empty() ||
        !assignment_.spec().checkpoint().export_hugging_face()) {
      return absl::OkStatus();
    }
    reports_.OnPhase(TrainerPhase::kExporting, result.step);
    CheckpointExport request;
    request.checkpoint = result.checkpoint;
    request.folder = assignment_.run_directory() + "/model";
    request.tokenizer = TokenizerFolderOfJob(options_.job);
    request.overwrite = true;
    TESSERA_RETURN_IF_ERROR(OfFiles(ExportCheckpoint(request)));
    exported_ = request.folder;
    return absl::OkStatus();
  }

  const LaunchEnvironment& environment_;
  TrainerSignals* signals_;
  std::unique_ptr<WorkerMetrics> metrics_;
  std::unique_ptr<ControlClient> client_;
  std::atomic<ControlClient*> started_client_{
      nullptr};  // for the client's thread, when there is an assignment
  std::atomic<uint64_t> mask_fingerprint_{0};
  v1::Assignment assignment_;
  std::unique_ptr<Model> model_;
  plan::MaskPlan plan_;
  std::unique_ptr<Dataset> train_, validation_;
  TrainerOptions options_;
  std::unique_ptr<RendezvousClient> rendezvous_;
  std::unique_ptr<World> world_;
  Gpu* gpu_ = nullptr;  // null: the host computes
  std::unique_ptr<SchedulerSink> scheduler_sink_;
  std::unique_ptr<StandstillWatch> watch_;
  std::unique_ptr<TextLog> text_log_;
  std::unique_ptr<MetricsLog> log_;
  std::unique_ptr<EventFile> events_;
  ReportFanOut reports_;
  std::unique_ptr<Trainer> trainer_;
  std::string exported_;
};

}  // namespace

absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(const Variable& variable) {
  const auto optional = [&](const char* name) {
    return std::string(variable(name) != nullptr ? variable(name) : "");
  };
  LaunchEnvironment environment;
  TESSERA_ASSIGN_OR_RETURN(environment.scheduler, Required(variable, "TESSERA_SCHEDULER"));
  TESSERA_ASSIGN_OR_RETURN(environment.job_uid, Required(variable, "TESSERA_JOB"));
  TESSERA_ASSIGN_OR_RETURN(environment.epoch, RequiredNumber(variable, "TESSERA_EPOCH"));
  TESSERA_ASSIGN_OR_RETURN(environment.rank, RequiredNumber(variable, "TESSERA_RANK"));
  environment.token_file = optional("TESSERA_TOKEN_FILE");
  environment.ca_file = optional("TESSERA_CA_FILE");
  environment.node = optional("TESSERA_NODE");
  if (environment.node.empty()) environment.node = HostName();
  environment.bind_address = optional("TESSERA_BIND_ADDRESS");
  if (std::string given = optional("TESSERA_METRICS_ADDRESS"); !given.empty()) {
    environment.metrics_address = std::move(given);
  }
  return environment;
}

ExitCode RunUnderLauncher(const LaunchEnvironment& environment, TrainerSignals* signals) {
  InstallMemoryCounter();
  return TrainingRun(environment, signals).Run();
}

}  // namespace tessera::worker

// tessera train: from a job file to a model, with whatever is needed started here.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "services/cli/commands.h"
#include "services/cli/display.h"
#include "services/cli/ending.h"
#include "services/cli/follow.h"
#include "services/cli/job_arguments.h"
#include "services/cli/job_file.h"
#include "services/cli/quantity.h"
#include "services/cli/request.h"

namespace tessera::cli {
namespace {

struct TrainArguments {
  std::shared_ptr<JobArguments> job;
  bool fresh = false;
  bool detach = false;
  bool no_sample = false;
};

constexpr const char* kFooter =
    "Running the same command again resumes a suspended job, or one that failed where that is possible,\n"
    "and watches one that runs. --fresh deletes the job with its checkpoints and begins anew.\n\n"
    "Examples:\n"
    "  tessera train deploy/recipes/quickstart.yaml --workers 4 --steps 300\n"
    "  tessera train job.yaml --set spec.subnetwork.coverage=0.75 --set spec.data.train=data/train.bin\n";

class Training {
 public:
  Training(Session& session, const TrainArguments& arguments) : session_(session), arguments_(arguments) {}

  int Run();

 private:
  // Makes the job run. A value: nothing is to be watched, and this is the exit code.
  absl::StatusOr<std::optional<int>> Begin();
  absl::StatusOr<std::optional<int>> Continue(const v1::TrainingJob& existing);
  absl::StatusOr<std::optional<int>> StartAgain(const v1::TrainingJob& existing);
  absl::Status Create();
  void SayPlan();
  absl::Status RefuseOtherSettings(const v1::TrainingJob& existing,
                                   const std::vector<std::string>& differences);
  int Finish(const FollowResult& result);
  bool Interrupted() const { return session_.environment.interrupts->count() > interrupts_before_; }

  Session& session_;
  const TrainArguments& arguments_;
  Client* client_ = nullptr;
  v1::TrainingJob job_;  // as asked for
  bool resumed_ = false;
  int interrupts_before_ = 0;
};

absl::Status Training::Create() {
  if (Interrupted()) return absl::CancelledError("interrupted; the job was not started");
  TESSERA_ASSIGN_OR_RETURN(const v1::CreateTrainingJobResponse created,
                           CreateJobUnlessInterrupted(*client_, job_, session_.environment.interrupts));
  const auto& spec = created.training_job().spec();
  session_.Say(
      absl::StrCat("submitted ", job_.name(), ": ",
                   spec.model().preset().empty() ? spec.model().config_path() : spec.model().preset(), ", ",
                   created.training_job().status().workers_size(), " workers"));
  SayPlan();
  return absl::OkStatus();
}

// What is known before anything runs.
void Training::SayPlan() {
  v1::GetPlanRequest request;
  request.set_namespace_(session_.ns);
  request.set_name(job_.name());
  const absl::StatusOr<v1::Plan> plan = client_->Call(&v1::PlanService::Stub::GetPlan, request);
  if (!plan.ok() || plan->workers().empty()) return;
  int64_t memory = 0, traffic = 0;
  double share = 0;
  for (const auto& worker : plan->workers()) {
    memory = std::max(memory, worker.memory().peak());
    traffic = std::max(traffic, worker.traffic_bytes_per_step());
    share = std::max(share, worker.parameter_share());
  }
  std::string line =
      absl::StrCat("planned: a worker holds ", FormatPercent(share), " of the model, peaks at ",
                   FormatBytes(memory), " and sends ", FormatBytes(traffic), " a step");
  for (const auto& other : plan->alternatives()) {
    if (other.name() != "ddp" && other.name() != "fsdp") continue;  // tessera plan shows all
    absl::StrAppend(&line, "; ", other.name(), ": ", FormatBytes(other.memory_bytes()), ", ",
                    FormatBytes(other.traffic_bytes_per_step()));
  }
  session_.Say(line);
}

absl::Status Training::RefuseOtherSettings(const v1::TrainingJob& existing,
                                           const std::vector<std::string>& differences) {
  return absl::AlreadyExistsError(absl::StrCat(
      "the job ", existing.name(), " exists (", StateName(existing.status().state()), ", step ",
      existing.status().step(), ") with other settings:\n  ", absl::StrJoin(differences, "\n  "),
      "\nRun it with the settings it has, give this one another --name, or delete the old one and its "
      "checkpoints with --fresh."));
}

// A job that failed or was cancelled: on from its newest checkpoint if the service can, anew if there
// is none. Checkpoints are never deleted without being asked to.
absl::StatusOr<std::optional<int>> Training::StartAgain(const v1::TrainingJob& existing) {
  const std::string state = StateName(existing.status().state());
  if (Differences(job_, existing).empty()) {
    const auto resumed = ResumeJob(*client_, existing);
    if (resumed.ok()) {
      session_.Say(absl::StrCat("the job was ", state, "; it goes on from its newest checkpoint"));
      return std::nullopt;
    }
    if (!absl::IsFailedPrecondition(resumed.status()) && !absl::IsUnimplemented(resumed.status())) {
      return resumed.status();
    }
  }
  if (!existing.status().checkpoint().empty()) {
    return absl::AlreadyExistsError(absl::StrCat(
        "the job ", existing.name(), " is ", state, " at step ", existing.status().step(), " (",
        existing.status().message(), ") and cannot be resumed; its newest checkpoint is ",
        existing.status().checkpoint(), ".\nDelete it with its checkpoints and begin anew with --fresh, or ",
        "give this one another --name."));
  }
  session_.Say(absl::StrCat("the job was ", state, " at step ", existing.status().step(),
                            " and left no checkpoint; beginning anew"));
  TESSERA_RETURN_IF_ERROR(DeleteJobAndWait(session_, *client_, existing));
  TESSERA_RETURN_IF_ERROR(Create());
  return std::nullopt;
}

absl::StatusOr<std::optional<int>> Training::Continue(const v1::TrainingJob& existing) {
  const v1::JobState state = existing.status().state();
  if (state == v1::JOB_STATE_FAILED || state == v1::JOB_STATE_CANCELLED) return StartAgain(existing);
  const std::vector<std::string> differences = Differences(job_, existing);
  if (!differences.empty()) return RefuseOtherSettings(existing, differences);
  if (state == v1::JOB_STATE_SUCCEEDED) {
    if (session_.PrintMessage(existing)) return kSucceeded;
    PrintReport(session_, *client_, existing);
    session_.Say(absl::StrCat("\n", existing.name(),
                              " has succeeded already, nothing was done; --fresh deletes it and ",
                              "trains again"));
    return kSucceeded;
  }
  if (state == v1::JOB_STATE_SUSPENDED || existing.spec().suspend()) {
    TESSERA_RETURN_IF_ERROR(ResumeJob(*client_, existing).status());
    session_.Say(absl::StrCat("resuming ", existing.name(), " from step ", existing.status().step()));
    resumed_ = true;
  } else {
    session_.Say(absl::StrCat(existing.name(), " runs already; watching it"));
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<int>> Training::Begin() {
  TESSERA_ASSIGN_OR_RETURN(job_, LoadJob(session_, *arguments_.job));
  session_.ns = job_.namespace_();
  TESSERA_ASSIGN_OR_RETURN(client_, session_.ConnectOrStart());
  if (Interrupted()) return absl::CancelledError("interrupted");
  const absl::StatusOr<v1::TrainingJob> existing = GetJob(*client_, session_.ns, job_.name());
  if (absl::IsNotFound(existing.status())) {
    TESSERA_RETURN_IF_ERROR(Create());
    return std::nullopt;
  }
  TESSERA_RETURN_IF_ERROR(existing.status());
  if (!arguments_.fresh) return Continue(*existing);
  session_.Say(absl::StrCat("deleting ", job_.name(), " (", StateName(existing->status().state()),
                            ") and its checkpoints"));
  TESSERA_RETURN_IF_ERROR(DeleteJobAndWait(session_, *client_, *existing));
  TESSERA_RETURN_IF_ERROR(Create());
  return std::nullopt;
}

int Training::Finish(const FollowResult& result) {
  if (!result.ended || session_.PrintMessage(result.job)) return result.exit_code;
  const absl::StatusOr<Client*> client = session_.Connect();  // it may have been replaced while following
  if (!client.ok()) return session_.Fail(client.status());
  PrintReport(session_, **client, result.job);
  if (result.job.status().state() == v1::JOB_STATE_SUSPENDED) {
    session_.Say(absl::StrCat("\nsuspended at step ", result.job.status().step(), ". Go on: tessera train ",
                              arguments_.job->file, "   Begin anew: tessera train ", arguments_.job->file,
                              " --fresh"));
  }
  if (result.job.status().state() == v1::JOB_STATE_SUCCEEDED && !arguments_.no_sample) {
    PrintSample(session_, result.job);
  }
  PrintSeeAgain(session_, **client, result.job);
  return result.exit_code;
}

int Training::Run() {
  session_.environment.catch_interrupts();
  interrupts_before_ = session_.environment.interrupts->count();
  const absl::StatusOr<std::optional<int>> begun = Begin();
  if (absl::IsCancelled(begun.status()) && Interrupted()) {
    session_.Say(std::string(begun.status().message()));
    return kInterrupted;
  }
  if (!begun.ok()) return session_.Fail(begun.status());
  if (begun->has_value()) return **begun;
  if (arguments_.detach) {
    if (session_.Structured()) {
      const absl::StatusOr<v1::TrainingJob> job = GetJob(*client_, session_.ns, job_.name());
      if (!job.ok()) return session_.Fail(job.status());
      session_.PrintMessage(*job);
    }
    session_.Say(absl::StrCat("it runs in the background: tessera watch ", job_.name(), ", tessera get ",
                              job_.name(), ", tessera logs -f ", job_.name()));
    return kSucceeded;
  }
  FollowOptions options;
  options.suspend_on_interrupt = true;
  options.restart_daemon = true;
  options.was_suspended = resumed_;
  return Finish(Follow(session_, client_, job_.name(), options));
}

}  // namespace

void AddTrainCommand(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand("train", "Train a model: start what is needed, show it, report");
  auto arguments = std::make_shared<TrainArguments>();
  arguments->job = AddJobArguments(command);
  command->add_flag("--fresh", arguments->fresh,
                    "Delete a job of this name with its checkpoints and begin anew");
  command->add_flag("--detach", arguments->detach, "Do not wait for the end");
  command->add_flag("--no-sample", arguments->no_sample, "Do not generate a sample at the end");
  command->footer(kFooter);
  command->callback([&session, arguments] {
    session.action = [&session, arguments] { return Training(session, *arguments).Run(); };
  });
}

}  // namespace tessera::cli

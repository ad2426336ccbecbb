// tessera cancel, suspend, resume, delete.
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/tessera/v1/job_codec.h"
#include "services/cli/commands.h"
#include "services/cli/display.h"
#include "services/cli/job_file.h"
#include "services/cli/named_command.h"
#include "services/cli/request.h"

namespace tessera::cli {
namespace {

// Sends a request that names a job and shows the job it returns.
template <typename Request>
int Ask(Session& session, const std::string& name,
        grpc::Status (v1::JobService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                     v1::TrainingJob*)) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  Request request;
  request.set_namespace_(session.ns);
  request.set_name(name);
  const absl::StatusOr<v1::TrainingJob> job = (*client)->Call(method, request);
  if (!job.ok()) return session.Fail(job.status());
  if (session.PrintMessage(*job)) return kSucceeded;
  const auto& status = job->status();
  *session.environment.out << absl::StrCat(name, " ", StateName(status.state()),
                                           status.message().empty() ? "" : ": ", status.message())
                           << "\n";
  return kSucceeded;
}

int Cancel(Session& session, const std::string& name) {
  return Ask<v1::CancelTrainingJobRequest>(session, name, &v1::JobService::Stub::CancelTrainingJob);
}
int Suspend(Session& session, const std::string& name) {
  return Ask<v1::SuspendTrainingJobRequest>(session, name, &v1::JobService::Stub::SuspendTrainingJob);
}
int Resume(Session& session, const std::string& name) {
  return Ask<v1::ResumeTrainingJobRequest>(session, name, &v1::JobService::Stub::ResumeTrainingJob);
}

int Resize(Session& session, const std::string& name, int workers) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  v1::ResizeTrainingJobRequest request;
  request.set_namespace_(session.ns);
  request.set_name(name);
  request.set_workers(workers);
  // Plans, which measures the model where that was not done yet.
  const auto job = (*client)->Call(&v1::JobService::Stub::ResizeTrainingJob, request, absl::Minutes(5));
  if (!job.ok()) return session.Fail(job.status());
  if (!session.PrintMessage(*job)) {
    *session.environment.out << absl::StrCat(
        name, " goes on with ", workers, " workers as soon as those that run have written a checkpoint\n");
  }
  return kSucceeded;
}

int Update(Session& session, const std::string& name, const std::vector<std::string>& sets) {
  nlohmann::ordered_json changes = nlohmann::ordered_json::object();
  for (const std::string& set : sets) {
    if (absl::Status applied = ApplySet(set, &changes); !applied.ok()) return session.Fail(applied);
  }
  const auto job = spec::ParseJob(changes.dump());
  if (!job.ok()) return session.Fail(job.status());
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  v1::UpdateTrainingJobRequest request;
  request.set_namespace_(session.ns);
  request.set_name(name);
  *request.mutable_training_job() = *job;
  const auto updated = (*client)->Call(&v1::JobService::Stub::UpdateTrainingJob, request);
  if (!updated.ok()) return session.Fail(updated.status());
  if (!session.PrintMessage(*updated)) *session.environment.out << name << " updated\n";
  return kSucceeded;
}

// Another job that begins at the newest checkpoint of one that has ended.
int Retry(Session& session, const std::string& name, const std::string& new_name) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const absl::StatusOr<v1::TrainingJob> old = GetJob(**client, session.ns, name);
  if (!old.ok()) return session.Fail(old.status());
  if (!IsTerminal(old->status().state())) {
    return session.Fail(absl::FailedPreconditionError(
        absl::StrCat(name, " has not ended; it is ", StateName(old->status().state()))));
  }
  v1::ListCheckpointsRequest request;
  request.set_namespace_(session.ns);
  request.set_name(name);
  const auto checkpoints = (*client)->Call(&v1::JobService::Stub::ListCheckpoints, request);
  if (!checkpoints.ok()) return session.Fail(checkpoints.status());
  v1::TrainingJob job;
  job.set_namespace_(session.ns);
  job.set_name(new_name.empty() ? absl::StrCat(name, "-retry") : new_name);
  *job.mutable_spec() = old->spec();
  job.mutable_spec()->clear_suspend();
  std::string from = "the beginning: there is no checkpoint";
  if (!checkpoints->checkpoints().empty()) {
    const v1::Checkpoint& newest = *checkpoints->checkpoints().rbegin();
    job.mutable_spec()->mutable_checkpoint()->set_resume_from(newest.path());
    from = absl::StrCat("step ", newest.step());
  }
  const auto created = CreateJob(**client, job, /*validate_only=*/false);
  if (!created.ok()) return session.Fail(created.status());
  if (session.PrintMessage(created->training_job())) return kSucceeded;
  *session.environment.out << absl::StrCat(
      created->training_job().name(), session.output == "name" ? "" : absl::StrCat(" starts from ", from),
      "\n");
  return kSucceeded;
}

int Delete(Session& session, const std::string& name) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const absl::StatusOr<v1::TrainingJob> job = GetJob(**client, session.ns, name);
  if (!job.ok()) return session.Fail(job.status());
  if (absl::Status deleted = DeleteJobAndWait(session, **client, *job); !deleted.ok())
    return session.Fail(deleted);
  if (session.PrintJson({{"namespace", session.ns}, {"name", name}, {"deleted", true}})) return kSucceeded;
  *session.environment.out << name << (session.output == "name" ? "\n" : " deleted\n");
  return kSucceeded;
}

}  // namespace

void AddLifecycleCommands(CLI::App& app, Session& session) {
  AddNamedCommand(app, session, "cancel", "End a job for good", "Example:\n  tessera cancel quickstart\n",
                  Cancel);
  AddNamedCommand(app, session, "suspend", "Write a checkpoint and stop a job until it is resumed",
                  "Example:\n  tessera suspend quickstart\n", Suspend);
  AddNamedCommand(app, session, "resume", "Let a suspended job go on from its newest checkpoint",
                  "Example:\n  tessera resume quickstart\n", Resume);
  CLI::App* resize = app.add_subcommand("resize", "Go on with another number of workers");
  auto name = std::make_shared<std::string>();
  auto workers = std::make_shared<int>(0);
  resize->add_option("NAME", *name, "Name of the job")->required();
  resize->add_option("WORKERS", *workers, "Their number")->required()->check(AtLeastOne());
  resize->footer("A running job stops at a checkpoint first.\n\nExample:\n  tessera resize quickstart 2\n");
  resize->callback([&session, name, workers] {
    session.action = [&session, name, workers] { return Resize(session, *name, *workers); };
  });

  CLI::App* update =
      app.add_subcommand("update", "Change priority, queue, retries, deadlines or time to live");
  auto of = std::make_shared<std::string>();
  auto sets = std::make_shared<std::vector<std::string>>();
  update->add_option("NAME", *of, "Name of the job")->required();
  update->add_option("--set", *sets, "Field and value, spec.priority=5; may be repeated")->required();
  update->footer(
      "Example:\n  tessera update quickstart --set spec.priority=5 --set spec.retry.infrastructure=10\n");
  update->callback([&session, of, sets] {
    session.action = [&session, of, sets] { return Update(session, *of, *sets); };
  });

  CLI::App* retry = app.add_subcommand("retry", "Submit an ended job again, from its newest checkpoint");
  auto ended = std::make_shared<std::string>();
  auto as = std::make_shared<std::string>();
  retry->add_option("NAME", *ended, "Name of the job that has ended")->required();
  retry->add_option("--name", *as, "Name of the new job; default: NAME-retry");
  retry->footer(
      "The ended job stays as it is.\n\nExample:\n  tessera retry quickstart --name quickstart-2\n");
  retry->callback([&session, ended, as] {
    session.action = [&session, ended, as] { return Retry(session, *ended, *as); };
  });
  AddNamedCommand(app, session, "delete", "Delete a job and its checkpoints; ends it first if it runs",
                  "Example:\n  tessera delete quickstart\n", Delete);
}

}  // namespace tessera::cli

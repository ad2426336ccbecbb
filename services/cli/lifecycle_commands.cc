// tessera cancel, suspend, resume, delete.
#include <memory>

#include "absl/strings/str_cat.h"
#include "services/cli/commands.h"
#include "services/cli/display.h"
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

int Delete(Session& session, const std::string& name) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const absl::StatusOr<v1::TrainingJob> job = GetJob(**client, session.ns, name);
  if (!job.ok()) return session.Fail(job.status());
  if (absl::Status deleted = DeleteJobAndWait(session, **client, *job); !deleted.ok())
    return session.Fail(deleted);
  *session.environment.out << name << " deleted\n";
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
  AddNamedCommand(app, session, "delete", "Delete a job and its checkpoints; ends it first if it runs",
                  "Example:\n  tessera delete quickstart\n", Delete);
}

}  // namespace tessera::cli

// tessera submit, validate: what is done with a job file beside training.
#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/tessera/v1/defaults.h"
#include "proto/tessera/v1/job_codec.h"
#include "services/cli/commands.h"
#include "services/cli/display.h"
#include "services/cli/job_arguments.h"
#include "services/cli/request.h"

namespace tessera::cli {
namespace {

int Submit(Session& session, const JobArguments& arguments) {
  const absl::StatusOr<v1::TrainingJob> job = LoadJob(session, arguments);
  if (!job.ok()) return session.Fail(job.status());
  const absl::StatusOr<Client*> client = session.ConnectOrStart();
  if (!client.ok()) return session.Fail(client.status());
  const auto created = CreateJob(**client, *job, /*validate_only=*/false);
  if (!created.ok()) return session.Fail(created.status());
  const v1::TrainingJob& stored = created->training_job();
  if (!session.PrintMessage(stored)) {
    *session.environment.out << (session.output == "name"
                                     ? stored.name()
                                     : absl::StrCat(stored.name(), " ", StateName(stored.status().state())))
                             << "\n";
  }
  return kSucceeded;
}

int Validate(Session& session, const JobArguments& arguments) {
  absl::StatusOr<v1::TrainingJob> job = LoadJob(session, arguments);
  if (!job.ok()) return session.Fail(job.status());
  spec::ApplyDefaults(&*job);
  if (!session.PrintMessage(*job)) {
    *session.environment.out << arguments.file << " is valid; -o yaml shows it with its defaults\n";
  }
  return kSucceeded;
}

void Add(CLI::App& app, Session& session, const char* name, const char* what, const char* footer,
         int (*run)(Session&, const JobArguments&)) {
  CLI::App* command = app.add_subcommand(name, what);
  const std::shared_ptr<JobArguments> arguments = AddJobArguments(command);
  command->footer(footer);
  command->callback([&session, arguments, run] {
    session.action = [&session, arguments, run] { return run(session, *arguments); };
  });
}

}  // namespace

void AddSubmitCommands(CLI::App& app, Session& session) {
  Add(app, session, "submit", "Submit a job and return",
      "Example:\n  tessera submit job.yaml --name run-7 -o name\n", Submit);
  Add(app, session, "validate", "Check a job file without a service",
      "Example:\n  tessera validate job.yaml -o yaml   # with all defaults\n", Validate);
}

}  // namespace tessera::cli

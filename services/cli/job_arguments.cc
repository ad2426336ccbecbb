#include "services/cli/job_arguments.h"

#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/defaults.h"
#include "proto/tessera/v1/validate.h"
#include "services/cli/job_file.h"

namespace tessera::cli {
namespace {

// "My job.yaml" -> "my-job", as names of jobs have to be.
std::string NameFromFile(const std::string& path) {
  std::string name;
  for (const char c : std::filesystem::path(path).stem().string()) {
    const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
    if (absl::ascii_isalnum(static_cast<unsigned char>(lower))) {
      name += lower;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  name = name.substr(0, 63);
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name;
}

}  // namespace

std::shared_ptr<JobArguments> AddJobArguments(CLI::App* command) {
  auto arguments = std::make_shared<JobArguments>();
  command->add_option("JOB", arguments->file, "Job file, YAML or JSON")->required();
  command->add_option("--workers", arguments->workers, "Number of workers (spec.workers.count)");
  command->add_option("--steps", arguments->steps, "Length of the run (spec.schedule.steps)");
  command->add_option("--name", arguments->name, "Name of the job; default: the file's");
  command
      ->add_option(
          "--set", arguments->sets,
          "Change a field: PATH=VALUE, e.g. spec.subnetwork.coverage=0.5; VALUE is YAML, null takes it out")
      ->allow_extra_args(false);
  return arguments;
}

absl::StatusOr<v1::TrainingJob> LoadJob(const Session& session, const JobArguments& arguments) {
  JobFileOptions options;
  options.working_directory = session.environment.working_directory;
  options.sets = arguments.sets;
  if (arguments.workers) options.sets.push_back(absl::StrCat("spec.workers.count=", *arguments.workers));
  if (arguments.steps) {
    options.sets.push_back("spec.schedule.tokens=null");
    options.sets.push_back("spec.schedule.epochs=null");
    options.sets.push_back(absl::StrCat("spec.schedule.steps=", *arguments.steps));
  }
  TESSERA_ASSIGN_OR_RETURN(v1::TrainingJob job, LoadJobFile(arguments.file, options));
  if (!arguments.name.empty()) job.set_name(arguments.name);
  if (job.name().empty()) job.set_name(NameFromFile(arguments.file));
  if (job.namespace_().empty()) job.set_namespace_(session.ns);
  v1::TrainingJob resolved = job;
  spec::ApplyDefaults(&resolved);
  TESSERA_RETURN_IF_ERROR(spec::MakeInvalid(spec::Validate(resolved)));
  return job;
}

}  // namespace tessera::cli

// tessera plan: what a job would need, and how the plans of a job differ.
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/quantity.h"
#include "proto/tessera/v1/violation.h"
#include "services/cli/commands.h"
#include "services/cli/job_arguments.h"
#include "services/cli/job_file.h"
#include "services/cli/named_command.h"
#include "services/cli/offline_plan.h"
#include "services/cli/plan_diff.h"
#include "services/cli/plan_view.h"
#include "services/cli/request.h"
#include "services/cli/table.h"

namespace tessera::cli {
namespace {

struct PlanArguments {
  std::shared_ptr<JobArguments> job;
  std::string preset;
  std::string device_memory;
  std::optional<double> coverage;
  std::optional<int> batch;
  std::optional<int64_t> sequence_length;
};

struct DiffArguments {
  std::string name;
  int64_t before = 0;
  int64_t after = 0;
};

void Print(const Session& session, const std::vector<std::string>& lines) {
  for (const auto& line : lines) *session.environment.out << line << "\n";
}

int Show(const Session& session, const v1::Plan& plan) {
  if (!session.PrintMessage(plan)) {
    Print(session, RenderPlan(plan, session.environment.width(), session.style()));
  }
  return kSucceeded;
}

absl::StatusOr<v1::TrainingJob> JobOfOptions(const Session& session, const PlanArguments& arguments) {
  v1::TrainingJob start;
  start.set_name("plan");
  start.mutable_spec()->mutable_model()->set_preset(arguments.preset);
  start.mutable_spec()->mutable_schedule()->set_steps(arguments.job->steps.value_or(1));
  TESSERA_ASSIGN_OR_RETURN(v1::TrainingJob job,
                           ChangeJob(start, {.working_directory = session.environment.working_directory,
                                             .sets = arguments.job->sets}));
  v1::TrainingJobSpec& spec = *job.mutable_spec();
  if (arguments.job->workers) spec.mutable_workers()->set_count(*arguments.job->workers);
  if (arguments.batch) spec.mutable_workers()->set_batch(*arguments.batch);
  if (arguments.sequence_length) spec.mutable_data()->set_sequence_length(*arguments.sequence_length);
  if (arguments.coverage) spec.mutable_subnetwork()->set_coverage(*arguments.coverage);
  if (arguments.device_memory.empty()) return job;
  const std::optional<int64_t> bytes = spec::ParseBytes(arguments.device_memory);
  if (!bytes || *bytes < 1) {
    return spec::MakeInvalid({{.path = "--device-memory",
                               .value = arguments.device_memory,
                               .message = "must be a quantity of bytes above 0",
                               .remedy = "for example 80GiB"}});
  }
  spec.mutable_resources()->set_memory_limit_bytes(*bytes);
  return job;
}

int PlanPreset(const Session& session, const PlanArguments& arguments) {
  const absl::StatusOr<v1::TrainingJob> job = JobOfOptions(session, arguments);
  if (!job.ok()) return session.Fail(job.status());
  const absl::StatusOr<v1::Plan> plan =
      PlanOffline(*job, {.worker_program = FindProgram(session.environment, "tessera-worker"),
                         .cache_directory = absl::StrCat(session.connection.state_directory, "/describe")});
  if (!plan.ok()) return session.Fail(plan.status());
  return Show(session, *plan);
}

int ShowPlan(Session& session, const PlanArguments& arguments) {
  const bool from_options = !arguments.preset.empty();
  if (from_options == !arguments.job->file.empty()) {
    return session.Fail(absl::InvalidArgumentError("give either a job file or --preset"));
  }
  if (from_options) return PlanPreset(session, arguments);
  JobArguments changed = *arguments.job;
  const auto set = [&](const char* path, const auto& value) {
    if (value) changed.sets.push_back(absl::StrCat(path, "=", *value));
  };
  set("spec.subnetwork.coverage", arguments.coverage);
  set("spec.workers.batch", arguments.batch);
  set("spec.data.sequenceLength", arguments.sequence_length);
  if (!arguments.device_memory.empty()) {
    changed.sets.push_back(absl::StrCat("spec.resources.memoryLimitBytes=", arguments.device_memory));
  }
  const absl::StatusOr<v1::TrainingJob> job = LoadJob(session, changed);
  if (!job.ok()) return session.Fail(job.status());
  const absl::StatusOr<Client*> client = session.ConnectOrStart();
  if (!client.ok()) return session.Fail(client.status());
  const auto planned = CreateJob(**client, *job, /*validate_only=*/true);
  if (!planned.ok()) return session.Fail(planned.status());
  return Show(session, planned->plan());
}

absl::StatusOr<v1::Plan> GetPlan(const Session& session, Client& client, const std::string& name,
                                 int64_t generation) {
  v1::GetPlanRequest request;
  request.set_namespace_(session.ns);
  request.set_name(name);
  request.set_generation(generation);
  return client.Call(&v1::PlanService::Stub::GetPlan, request);
}

int Diff(Session& session, const DiffArguments& arguments) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const absl::StatusOr<v1::Plan> before = GetPlan(session, **client, arguments.name, arguments.before);
  if (!before.ok()) return session.Fail(before.status());
  const absl::StatusOr<v1::Plan> after = GetPlan(session, **client, arguments.name, arguments.after);
  if (!after.ok()) return session.Fail(after.status());
  v1::ListPlansResponse both;
  *both.add_plans() = *before;
  *both.add_plans() = *after;
  if (!session.PrintMessage(both)) {
    Print(session, RenderPlanDiff(*before, *after, session.environment.width(), session.style()));
  }
  return kSucceeded;
}

int List(Session& session, const std::string& name) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  v1::ListPlansRequest request;
  request.set_namespace_(session.ns);
  request.set_name(name);
  const auto plans = (*client)->Call(&v1::PlanService::Stub::ListPlans, request);
  if (!plans.ok()) return session.Fail(plans.status());
  if (session.PrintMessage(*plans)) return kSucceeded;
  std::vector<std::vector<std::string>> rows;
  for (const v1::Plan& plan : plans->plans())
    rows.push_back({absl::StrCat(plan.generation()), plan.reason()});
  Print(session, RenderTable({{"PLAN"}, {"REASON"}}, rows, session.environment.width(), session.style()));
  return kSucceeded;
}

int Get(Session& session, const std::string& name, int64_t generation) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const absl::StatusOr<v1::Plan> plan = GetPlan(session, **client, name, generation);
  return plan.ok() ? Show(session, *plan) : session.Fail(plan.status());
}

}  // namespace

void AddPlanCommands(CLI::App& app, Session& session) {
  CLI::App* plan =
      app.add_subcommand("plan", "Show what a job would need, beside DDP and FSDP; stores nothing");
  auto arguments = std::make_shared<PlanArguments>();
  arguments->job = AddJobArguments(plan);
  plan->get_option("JOB")->required(false);
  plan->add_option("--preset", arguments->preset,
                   "Instead of a job file: this model, without service and data");
  plan->add_option("--device-memory", arguments->device_memory, "Memory of each worker, e.g. 80GiB");
  plan->add_option("--coverage", arguments->coverage, "Share of the maskable parameters a worker holds");
  plan->add_option("--batch", arguments->batch, "Samples per worker and micro-step");
  plan->add_option("--sequence-length", arguments->sequence_length, "Tokens per sample");
  plan->footer(
      "Example:\n  tessera plan job.yaml --set spec.subnetwork.coverage=0.5 --workers 8\n"
      "  tessera plan --preset llama-1b --device-memory 80GiB --workers 8 --coverage 0.6875\n"
      "  tessera plan --preset llama-8m --workers 4 --set spec.subnetwork.granularity=neuron\n"
      "  tessera plan diff my-job 3 4\n");
  plan->callback([&session, arguments, plan] {
    if (!plan->get_subcommands().empty()) return;
    session.action = [&session, arguments] { return ShowPlan(session, *arguments); };
  });

  CLI::App* diff = plan->add_subcommand("diff", "Show what differs between two plans of a job");
  auto generations = std::make_shared<DiffArguments>();
  diff->add_option("NAME", generations->name, "Name of the job")->required();
  diff->add_option("BEFORE", generations->before, "Number of a plan")->required()->check(AtLeastOne());
  diff->add_option("AFTER", generations->after, "Number of another; default: the newest")
      ->check(AtLeastOne());
  diff->footer("Example:\n  tessera plan diff my-job 3 4\n");
  diff->callback([&session, generations] {
    session.action = [&session, generations] { return Diff(session, *generations); };
  });

  CLI::App* list = plan->add_subcommand("list", "Show the plans a job has had, and why each was made");
  auto of = std::make_shared<std::string>();
  list->add_option("NAME", *of, "Name of the job")->required();
  list->footer("Example:\n  tessera plan list my-job\n");
  list->callback([&session, of] { session.action = [&session, of] { return List(session, *of); }; });

  CLI::App* get = plan->add_subcommand("get", "Show one plan of a job");
  auto wanted = std::make_shared<DiffArguments>();
  get->add_option("NAME", wanted->name, "Name of the job")->required();
  get->add_option("GENERATION", wanted->after, "Its number; default: the newest")->check(AtLeastOne());
  get->footer("Example:\n  tessera plan get my-job 2\n");
  get->callback([&session, wanted] {
    session.action = [&session, wanted] { return Get(session, wanted->name, wanted->after); };
  });
}

}  // namespace tessera::cli

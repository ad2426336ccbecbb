// tessera budgets: what of each layer's gradient is synchronised, and other budgets while a job trains.
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "services/cli/budget_view.h"
#include "services/cli/commands.h"
#include "services/cli/display.h"
#include "services/cli/named_command.h"

namespace tessera::cli {
namespace {

struct BudgetArguments {
  std::string name;
  std::vector<std::string> limits;
  int64_t of = 0;
  int64_t plan = 0;
  bool recompute = false;
};

// "layers.*=0.1:0.5"; either end may be missing.
absl::StatusOr<v1::DensityLimit> LimitFrom(const std::string& text) {
  const auto wrong = [&] {
    return absl::InvalidArgumentError(absl::StrCat(
        "--limit ", text, ": give PARAMETER=LEAST:MOST with densities from 0 to 1, as in layers.*=0.1:0.5"));
  };
  const std::pair<std::string, std::string> sides = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const std::vector<std::string> ends = absl::StrSplit(sides.second, ':');
  if (sides.first.empty() || ends.size() != 2 || (ends[0].empty() && ends[1].empty())) return wrong();
  v1::DensityLimit limit;
  limit.set_pattern(sides.first);
  double value = 0;
  if (!ends[0].empty()) {
    if (!absl::SimpleAtod(ends[0], &value)) return wrong();
    limit.set_min(value);
  }
  if (!ends[1].empty()) {
    if (!absl::SimpleAtod(ends[1], &value)) return wrong();
    limit.set_max(value);
  }
  return limit;
}

// "embed*=0.1:0.5".
std::string TextOf(const v1::DensityLimit& limit) {
  return absl::StrCat(limit.pattern(), "=", limit.has_min() ? absl::StrCat(limit.min()) : "", ":",
                      limit.has_max() ? absl::StrCat(limit.max()) : "");
}

int Show(Session& session, const BudgetArguments& arguments) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  v1::GetTrainingJobRequest wanted;
  wanted.set_namespace_(session.ns);
  wanted.set_name(arguments.name);
  wanted.mutable_read_mask()->add_paths("spec.dropping");
  const auto job = (*client)->Call(&v1::JobService::Stub::GetTrainingJob, wanted);
  if (!job.ok()) return session.Fail(job.status());
  v1::GetPlanRequest request;
  request.set_namespace_(session.ns);
  request.set_name(arguments.name);
  request.set_generation(arguments.plan);
  const auto plan = (*client)->Call(&v1::PlanService::Stub::GetPlan, request);
  if (!plan.ok()) return session.Fail(plan.status());
  if (session.PrintMessage(plan->dropping())) return kSucceeded;
  std::ostream& out = *session.environment.out;
  for (const std::string& line : RenderBudgets(*plan, session.environment.width(), session.style()))
    out << line << "\n";
  for (const v1::DensityLimit& limit : job->spec().dropping().layer_limits())
    out << absl::StrCat("limit ", TextOf(limit), "\n");
  return kSucceeded;
}

int Recompute(Session& session, const BudgetArguments& arguments) {
  v1::RecomputeBudgetsRequest request;
  request.set_namespace_(session.ns);
  request.set_name(arguments.name);
  request.set_budgets_of(arguments.of);
  for (const std::string& text : arguments.limits) {
    absl::StatusOr<v1::DensityLimit> limit = LimitFrom(text);
    if (!limit.ok()) return session.Fail(limit.status());
    *request.add_layer_limits() = *std::move(limit);
  }
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const auto job = (*client)->Call(&v1::JobService::Stub::RecomputeBudgets, request);
  if (!job.ok()) return session.Fail(job.status());
  if (session.PrintMessage(*job)) return kSucceeded;
  *session.environment.out << absl::StrCat(arguments.name, " gets new budgets; `tessera events ",
                                           arguments.name,
                                           "` says from which step they hold, or why they do not change\n");
  return kSucceeded;
}

}  // namespace

void AddBudgetCommands(CLI::App& app, Session& session) {
  CLI::App* budgets = app.add_subcommand(
      "budgets", "Show the gradient budgets of a job's layers, or divide them anew while it trains");
  auto arguments = std::make_shared<BudgetArguments>();
  budgets->add_option("NAME", arguments->name, "Name of the job")->required();
  CLI::Option* shown =
      budgets->add_option("--plan", arguments->plan, "Show those of this plan; default: the newest")
          ->check(AtLeastOne());
  CLI::Option* anew = budgets
                          ->add_flag("--recompute", arguments->recompute,
                                     "Measure the layers now and divide the budgets among them")
                          ->excludes(shown);
  CLI::Option* limits =
      budgets
          ->add_option(
              "--limit", arguments->limits,
              "PARAMETER=LEAST:MOST, densities of a layer from now on: divides the budgets anew within "
              "them. They take the place of those before; may be repeated")
          ->excludes(shown);
  budgets->add_option("--of", arguments->of, "Go back to the budgets of this plan instead of computing any")
      ->check(AtLeastOne())
      ->excludes(limits)
      ->excludes(anew)
      ->excludes(shown);
  budgets->footer(
      "All workers change at the same step. Needs spec.dropping.mode.\n\nExample:\n  tessera budgets my-job\n"
      "  tessera budgets my-job --recompute\n  tessera budgets my-job --limit 'embed*=0.1:0.2'\n"
      "  tessera budgets my-job --of 1\n");
  budgets->callback([&session, arguments] {
    session.action = [&session, arguments] {
      const bool change = arguments->recompute || !arguments->limits.empty() || arguments->of > 0;
      return change ? Recompute(session, *arguments) : Show(session, *arguments);
    };
  });
}

}  // namespace tessera::cli

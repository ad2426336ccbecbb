// tessera budgets: gradient budgets made anew while a job trains.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "services/cli/commands.h"
#include "services/cli/display.h"
#include "services/cli/named_command.h"

namespace tessera::cli {
namespace {

struct BudgetArguments {
  std::string name;
  std::vector<std::string> limits;
  int64_t of = 0;
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
  CLI::App* budgets =
      app.add_subcommand("budgets", "Divide the gradient budgets of a running job among its layers anew");
  auto arguments = std::make_shared<BudgetArguments>();
  budgets->add_option("NAME", arguments->name, "Name of the job")->required();
  CLI::Option* limits =
      budgets->add_option("--limit", arguments->limits,
                          "PARAMETER=LEAST:MOST, densities of a layer from now on; may be repeated");
  budgets->add_option("--of", arguments->of, "Go back to the budgets of this plan instead of computing any")
      ->check(AtLeastOne())
      ->excludes(limits);
  budgets->footer(
      "All workers change at the same step. Needs spec.dropping.mode.\n\nExample:\n  tessera budgets my-job\n"
      "  tessera budgets my-job --limit 'embed*=0.1:0.2'\n  tessera budgets my-job --of 1\n");
  budgets->callback([&session, arguments] {
    session.action = [&session, arguments] { return Recompute(session, *arguments); };
  });
}

}  // namespace tessera::cli

#include "services/cli/plan_diff.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/tessera/v1/job_codec.h"
#include "services/cli/budget_view.h"
#include "services/cli/quantity.h"

namespace tessera::cli {
namespace {

using Lines = std::vector<std::string>;
using Rows = std::vector<Lines>;

constexpr int kUnitsNamed = 12;
constexpr size_t kBudgetsNamed = 20;

void AddRow(const std::string& name, const std::string& before, const std::string& after, Rows* rows) {
  if (before != after) rows->push_back({name, before, after});
}

std::string Number(double value) { return absl::StrFormat("%.4g", value); }

Rows Facts(const v1::Plan& a, const v1::Plan& b) {
  Rows rows;
  const auto& x = a.inputs();
  const auto& y = b.inputs();
  AddRow("reason", a.reason(), b.reason(), &rows);
  AddRow("workers", absl::StrCat(x.workers()), absl::StrCat(y.workers()), &rows);
  AddRow("granularity", std::string(spec::EnumName(x.granularity())),
         std::string(spec::EnumName(y.granularity())), &rows);
  AddRow("masking", std::string(spec::EnumName(x.masking())), std::string(spec::EnumName(y.masking())),
         &rows);
  AddRow("scheme", std::string(spec::EnumName(x.scheme())), std::string(spec::EnumName(y.scheme())), &rows);
  AddRow("coverage", Number(x.coverage()), Number(y.coverage()), &rows);
  AddRow("least holders", absl::StrCat(x.min_holders()), absl::StrCat(y.min_holders()), &rows);
  AddRow("seed", absl::StrCat(x.seed()), absl::StrCat(y.seed()), &rows);
  AddRow("spectral gap", Number(a.spectral_gap()), Number(b.spectral_gap()), &rows);
  AddRow("holder sets", absl::StrCat(a.holder_sets()), absl::StrCat(b.holder_sets()), &rows);
  AddRow("gradient variance", Number(a.variance_factor()), Number(b.variance_factor()), &rows);
  AddRow("steps", absl::StrCat(a.total_steps()), absl::StrCat(b.total_steps()), &rows);
  AddRow("step time", Number(a.predicted_step_seconds()), Number(b.predicted_step_seconds()), &rows);
  AddRow("memory limit", FormatBytes(a.memory_limit_bytes()), FormatBytes(b.memory_limit_bytes()), &rows);
  AddRow("fit", a.fit(), b.fit(), &rows);
  return rows;
}

Rows Workers(const v1::Plan& a, const v1::Plan& b) {
  Rows rows;
  for (int rank = 0; rank < std::max(a.workers_size(), b.workers_size()); ++rank) {
    const auto& x = rank < a.workers_size() ? a.workers(rank) : v1::WorkerPlan::default_instance();
    const auto& y = rank < b.workers_size() ? b.workers(rank) : v1::WorkerPlan::default_instance();
    const std::string name = absl::StrCat("worker ", rank, " ");
    AddRow(name + "coverage", FormatPercent(x.coverage()), FormatPercent(y.coverage()), &rows);
    AddRow(name + "peak", FormatBytes(x.memory().peak()), FormatBytes(y.memory().peak()), &rows);
    AddRow(name + "sent/step", FormatBytes(x.traffic_bytes_per_step()),
           FormatBytes(y.traffic_bytes_per_step()), &rows);
  }
  return rows;
}

// Budgets that differ, those that changed most.
Rows Budgets(const v1::DroppingPlan& a, const v1::DroppingPlan& b) {
  struct Change {
    int parameter;
    double size;
  };
  std::vector<Change> changes;
  for (int p = 0; p < std::min(a.kept_size(), b.kept_size()); ++p) {
    if (a.kept(p) == b.kept(p)) continue;
    const double elements = p < b.elements_size() ? static_cast<double>(b.elements(p)) : 1;
    changes.push_back({p, std::abs(static_cast<double>(b.kept(p) - a.kept(p))) / elements});
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& x, const Change& y) { return x.size > y.size; });
  Rows rows;
  for (size_t i = 0; i < std::min(changes.size(), kBudgetsNamed); ++i) {
    const int p = changes[i].parameter;
    rows.push_back({absl::StrCat("budget of ", BudgetName(b, p)), BudgetText(a, p), BudgetText(b, p)});
  }
  if (changes.size() > kBudgetsNamed)
    rows.push_back({absl::StrCat("and ", changes.size() - kBudgetsNamed, " budgets less"), "", ""});
  return rows;
}

// Units whose holders differ, or how the units themselves do.
std::string Units(const v1::Plan& a, const v1::Plan& b) {
  if (a.units_size() != b.units_size()) {
    return absl::StrCat("the model is divided into ", a.units_size(), " units before and ", b.units_size(),
                        " after");
  }
  Lines moved;
  for (int u = 0; u < a.units_size(); ++u) {
    const std::set<int> x(a.units(u).holders().begin(), a.units(u).holders().end());
    const std::set<int> y(b.units(u).holders().begin(), b.units(u).holders().end());
    if (x != y) moved.push_back(a.units(u).name().empty() ? absl::StrCat("unit ", u) : a.units(u).name());
  }
  if (moved.empty()) return "";
  const size_t count = moved.size();
  if (moved.size() > kUnitsNamed) moved.resize(kUnitsNamed);
  return absl::StrCat(count, " of ", a.units_size(), " units change holders: ", absl::StrJoin(moved, ", "),
                      count > kUnitsNamed ? ", ..." : "");
}

}  // namespace

std::vector<std::string> RenderPlanDiff(const v1::Plan& before, const v1::Plan& after, int width,
                                        const Style& style) {
  Rows rows = Facts(before, after);
  for (Lines& row : Workers(before, after)) rows.push_back(std::move(row));
  for (Lines& row : Budgets(before.dropping(), after.dropping())) rows.push_back(std::move(row));
  const std::string units = Units(before, after);
  if (rows.empty() && units.empty()) {
    return {absl::StrCat("plans ", before.generation(), " and ", after.generation(), " do not differ")};
  }
  Lines lines;
  if (!rows.empty()) {
    lines = RenderTable({{""},
                         {absl::StrCat("plan ", before.generation()), true},
                         {absl::StrCat("plan ", after.generation()), true}},
                        rows, width, style);
  }
  for (std::string& line : Wrap(units, width, "")) lines.push_back(std::move(line));
  return lines;
}

}  // namespace tessera::cli

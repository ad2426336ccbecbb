#include "services/cli/budget_view.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/cli/quantity.h"

namespace tessera::cli {
namespace {

using Lines = std::vector<std::string>;

// As few figures as tell budgets apart: a whole parameter is "100 %".
std::string Share(double ratio) { return absl::StrFormat("%.3g %%", 100 * ratio); }

// 0 of a plan that was stored without sizes.
int64_t Elements(const v1::DroppingPlan& dropping, int p) {
  return p < dropping.elements_size() ? dropping.elements(p) : 0;
}

struct Group {
  std::string name;
  std::string first;  // of its parameters
  int parameters = 0;
  int64_t elements = 0;
  int64_t kept = 0;
  double least = 1;
  double most = 0;
};

// "layers.12.weight" -> "layers.*.weight".
std::string WithoutNumbers(const std::string& name) {
  std::string group;
  for (const char c : name) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) {
      group += c;
    } else if (group.empty() || group.back() != '*') {
      group += '*';
    }
  }
  return group;
}

// In the order of the model.
std::vector<Group> Groups(const v1::DroppingPlan& dropping) {
  std::vector<Group> groups;
  for (int p = 0; p < dropping.kept_size(); ++p) {
    const std::string name = WithoutNumbers(BudgetName(dropping, p));
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const Group& one) { return one.name == name; });
    if (group == groups.end())
      group = groups.insert(group, Group{.name = name, .first = BudgetName(dropping, p)});
    const int64_t elements = Elements(dropping, p);
    const double share =
        elements > 0 ? static_cast<double>(dropping.kept(p)) / static_cast<double>(elements) : 0;
    ++group->parameters;
    group->elements += elements;
    group->kept += dropping.kept(p);
    group->least = std::min(group->least, share);
    group->most = std::max(group->most, share);
  }
  return groups;
}

std::string Count(int64_t elements) {
  return elements > 0 ? FormatCount(static_cast<double>(elements)) : "-";
}

std::string Contributions(const v1::DroppingPlan& dropping) {
  Lines parts;
  for (int rank = 0; rank < dropping.worker_shares_size(); ++rank)
    parts.push_back(absl::StrCat("worker ", rank, " ", Share(dropping.worker_shares(rank))));
  return absl::StrCat("of what is kept contribute: ", absl::StrJoin(parts, ", "));
}

}  // namespace

std::string BudgetName(const v1::DroppingPlan& dropping, int parameter) {
  return parameter < dropping.parameters_size() ? dropping.parameters(parameter)
                                                : absl::StrCat("parameter ", parameter);
}

std::string BudgetText(const v1::DroppingPlan& dropping, int parameter) {
  const int64_t elements = Elements(dropping, parameter);
  if (elements <= 0) return absl::StrCat(dropping.kept(parameter));
  return Share(static_cast<double>(dropping.kept(parameter)) / static_cast<double>(elements));
}

Lines RenderBudgets(const v1::Plan& plan, int width, const Style& style) {
  const v1::DroppingPlan& dropping = plan.dropping();
  if (dropping.kept_size() == 0) {
    return Wrap(
        absl::StrCat("plan ", plan.generation(), " has no gradient budgets: ",
                     dropping.reason().empty() ? "the job has no spec.dropping.mode" : dropping.reason()),
        width, "");
  }
  std::string head =
      absl::StrCat("plan ", plan.generation(), ": ", Share(dropping.density()),
                   " of the gradient elements are synchronised",
                   dropping.mode() == v1::DROPPING_MODE_SHADOW ? " (computed, not applied)" : "");
  if (dropping.first_step() > 0)
    absl::StrAppend(&head, ", all of them in the first ", dropping.first_step(), " steps");
  if (dropping.budgets_of() > 0)
    absl::StrAppend(&head, "; the budgets are those of plan ", dropping.budgets_of());
  Lines lines = Wrap(head, width, "");
  if (!plan.reason().empty()) {
    for (std::string& line : Wrap(plan.reason(), width, "  ")) lines.push_back(std::move(line));
  }
  std::vector<Lines> rows;
  for (int p = 0; p < dropping.kept_size(); ++p) {
    rows.push_back({BudgetName(dropping, p), Count(Elements(dropping, p)), Count(dropping.kept(p)),
                    BudgetText(dropping, p)});
  }
  lines.push_back("");
  for (std::string& line :
       RenderTable({{"PARAMETER"}, {"ELEMENTS", true, 2}, {"KEPT", true, 1}, {"DENSITY", true}}, rows, width,
                   style)) {
    lines.push_back(std::move(line));
  }
  if (dropping.worker_shares_size() > 0) {
    lines.push_back("");
    for (std::string& line : Wrap(Contributions(dropping), width, "")) lines.push_back(std::move(line));
  }
  return lines;
}

Lines RenderBudgetGroups(const v1::Plan& plan, int width, const Style& style) {
  std::vector<Lines> rows;
  for (const Group& group : Groups(plan.dropping())) {
    const bool alike = group.most - group.least < 5e-4;
    rows.push_back({group.parameters == 1 ? group.first : group.name, absl::StrCat(group.parameters),
                    Count(group.elements), Count(group.kept),
                    group.elements == 0 ? "-"
                    : alike             ? Share(group.most)
                                        : absl::StrCat(Share(group.least), " to ", Share(group.most))});
  }
  if (rows.empty()) return {};
  return RenderTable({{"gradient budgets"},
                      {"parameters", true, 3},
                      {"elements", true, 2},
                      {"kept", true, 1},
                      {"density", true}},
                     rows, width, style);
}

}  // namespace tessera::cli

// Gradient budgets of a plan as people read them. Pure.
#pragma once

#include <string>
#include <vector>

#include "services/cli/table.h"
#include "tessera/v1/plan.pb.h"

namespace tessera::cli {

// What of each parameter's gradient is synchronised, a row per parameter; and what each worker contributes
// where that is not everything. One line that says why where there are no budgets.
std::vector<std::string> RenderBudgets(const v1::Plan& plan, int width, const Style& style);

// The same, a row for all parameters whose names differ by numbers alone:
// "model.layers.*.mlp.up_proj.weight". Empty without budgets.
std::vector<std::string> RenderBudgetGroups(const v1::Plan& plan, int width, const Style& style);

// "12.5 %", of a parameter of `dropping`.
std::string BudgetText(const v1::DroppingPlan& dropping, int parameter);
// Its name; "parameter 3" in a plan that was stored without names.
std::string BudgetName(const v1::DroppingPlan& dropping, int parameter);

}  // namespace tessera::cli

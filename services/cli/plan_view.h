// A plan as people read it. Pure.
#pragma once

#include <string>
#include <vector>

#include "services/cli/table.h"
#include "tessera/v1/plan.pb.h"

namespace tessera::cli {

// Summary, workers × units, memory and traffic per worker, the same of other ways to train, and gradient
// budgets.
std::vector<std::string> RenderPlan(const v1::Plan& plan, int width, const Style& style);

// One row per worker, one cell per unit in the order of the plan. Units always on are
// drawn apart from those a worker was chosen for. Wide matrices break into bands of
// `width` columns.
std::vector<std::string> RenderMaskMatrix(const v1::Plan& plan, int width, const Style& style);

}  // namespace tessera::cli

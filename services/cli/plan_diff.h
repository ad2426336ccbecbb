// Two plans of a job beside each other. Pure.
#pragma once

#include <string>
#include <vector>

#include "services/cli/table.h"
#include "tessera/v1/plan.pb.h"

namespace tessera::cli {

// What differs: inputs, quality of the masks, then each worker's coverage, memory and traffic, and the
// units that changed hands. One line says so if nothing does.
std::vector<std::string> RenderPlanDiff(const v1::Plan& before, const v1::Plan& after, int width,
                                        const Style& style);

}  // namespace tessera::cli

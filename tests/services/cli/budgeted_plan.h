// A plan with gradient budgets, for rendering tests.
#pragma once

#include "tests/services/cli/example_job.h"

namespace tessera::cli {

// ExamplePlan with budgets of four parameters.
inline v1::Plan BudgetedPlan() {
  v1::Plan plan = ExamplePlan();
  v1::DroppingPlan& dropping = *plan.mutable_dropping();
  dropping.set_mode(v1::DROPPING_MODE_ENFORCE);
  dropping.set_density(0.3);
  const auto add = [&](const char* name, int64_t elements, int64_t kept) {
    dropping.add_parameters(name);
    dropping.add_elements(elements);
    dropping.add_kept(kept);
  };
  add("model.embed_tokens.weight", 10'000, 1'000);
  add("model.layers.0.mlp.up_proj.weight", 20'000, 5'000);
  add("model.layers.1.mlp.up_proj.weight", 20'000, 8'770);
  add("model.norm.weight", 200, 200);
  return plan;
}

}  // namespace tessera::cli

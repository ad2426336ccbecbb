#include "services/cli/budget_view.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/cli/plan_diff.h"
#include "services/cli/plan_view.h"
#include "tests/services/cli/budgeted_plan.h"

namespace tessera::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(RenderBudgets, ARowForEachParameter) {
  v1::Plan plan = BudgetedPlan();
  plan.mutable_dropping()->set_first_step(30);
  EXPECT_EQ(Text(RenderBudgets(plan, 100, kUnicode)),
            R"(plan 1: 30 % of the gradient elements are synchronised, all of them in the first 30 steps
  submitted

PARAMETER                          ELEMENTS   KEPT  DENSITY
model.embed_tokens.weight             10.0k  1.00k     10 %
model.layers.0.mlp.up_proj.weight     20.0k  5.00k     25 %
model.layers.1.mlp.up_proj.weight     20.0k  8.77k   43.9 %
model.norm.weight                       200    200    100 %
)");
}

TEST(RenderBudgets, WhatWorkersContributeWhereItIsNotEverything) {
  v1::Plan plan = BudgetedPlan();
  plan.mutable_dropping()->add_worker_shares(1);
  plan.mutable_dropping()->add_worker_shares(0.25);
  EXPECT_THAT(Text(RenderBudgets(plan, 100, kAscii)),
              HasSubstr("of what is kept contribute: worker 0 100 %, worker 1 25 %\n"));
}

TEST(RenderBudgets, SaysWhyThereAreNone) {
  EXPECT_EQ(Text(RenderBudgets(ExamplePlan(), 100, kAscii)),
            "plan 1 has no gradient budgets: the job has no spec.dropping.mode\n");
  v1::Plan plan = ExamplePlan();
  plan.mutable_dropping()->set_reason("the links are fast");
  EXPECT_EQ(Text(RenderBudgets(plan, 100, kAscii)), "plan 1 has no gradient budgets: the links are fast\n");
}

// As written by a service that did not store names.
TEST(RenderBudgets, WithoutNamesParametersAreCounted) {
  v1::Plan plan = BudgetedPlan();
  plan.mutable_dropping()->clear_parameters();
  plan.mutable_dropping()->clear_elements();
  EXPECT_THAT(Text(RenderBudgets(plan, 100, kAscii)), HasSubstr("parameter 2         -  8.77k     8770\n"));
}

TEST(RenderPlan, PutsLayersOfOneKindTogether) {
  const std::string text = Text(RenderPlan(BudgetedPlan(), 140, kUnicode));
  EXPECT_THAT(text, HasSubstr(R"(
gradient budgets                   parameters  elements   kept         density
model.embed_tokens.weight                   1     10.0k  1.00k            10 %
model.layers.*.mlp.up_proj.weight           2     40.0k  13.8k  25 % to 43.9 %
model.norm.weight                           1       200    200           100 %
)"));
  EXPECT_THAT(Text(RenderPlan(ExamplePlan(), 140, kUnicode)), Not(HasSubstr("gradient budgets")));
}

TEST(RenderPlanDiff, NamesBudgetsThatChangedThoseThatChangedMostFirst) {
  const v1::Plan before = BudgetedPlan();
  v1::Plan after = before;
  after.set_generation(2);
  after.mutable_dropping()->set_kept(1, 6000);
  after.mutable_dropping()->set_kept(2, 2000);
  EXPECT_EQ(Text(RenderPlanDiff(before, after, 100, kAscii)),
            R"(                                             plan 1  plan 2
budget of model.layers.1.mlp.up_proj.weight  43.9 %    10 %
budget of model.layers.0.mlp.up_proj.weight    25 %    30 %
)");
}

}  // namespace
}  // namespace tessera::cli

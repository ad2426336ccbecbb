#include "services/cli/plan_view.h"

#include "services/cli/plan_diff.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/services/cli/example_job.h"

namespace tessera::cli {
namespace {

using testing::HasSubstr;

v1::Plan Limited(v1::Plan plan) {
  plan.set_memory_limit_bytes(256 << 20);
  return plan;
}

TEST(RenderPlan, ShowsMasksMemoryAndAlternatives) {
  EXPECT_EQ(Text(RenderPlan(Limited(ExamplePlan()), 140, kUnicode)),
            R"(plan 1: 2 workers, block forward masks, scheme cyclic, coverage 0.5, seed 1
  submitted
8.00M parameters, 6.00M of them maskable; spectral gap 0.2500; 3 holder sets; 300 steps
it fits

worker 0   ■ ▣ · ■
worker 1   ■ · ▣ ■
units in order; ■ always on  ▣ held  · absent

          coverage  of model   weights  gradients  optimizer  buffers  activations  transient     peak      left  sent/step
worker 0      50 %      75 %  24.0 MiB   24.0 MiB   48.0 MiB        -     80.0 MiB   4.00 MiB  180 MiB  76.0 MiB   12.0 MiB
worker 1      50 %      75 %  24.0 MiB   24.0 MiB   48.0 MiB        -     80.0 MiB   4.00 MiB  180 MiB  76.0 MiB   12.0 MiB

              peak   to ddp       left  sent/step   to ddp
with ddp   300 MiB   +0.0 %  -44.0 MiB   24.0 MiB   +0.0 %
with fsdp  220 MiB  -26.7 %   36.0 MiB   36.0 MiB  +50.0 %
)");
}

TEST(RenderPlan, SaysTheCoverageThatWouldFit) {
  v1::Plan plan = ExamplePlan();
  plan.set_fit("worker 1 needs 180 MiB of 128 MiB");
  plan.set_nearest_coverage(0.25);
  EXPECT_THAT(
      Text(RenderPlan(plan, 200, kAscii)),
      HasSubstr(
          "it does not fit: worker 1 needs 180 MiB of 128 MiB; the largest coverage that fits is 0.25\n"));
}

TEST(RenderPlan, NamesTheChangesThatWouldMakeItFit) {
  v1::Plan plan = ExamplePlan();
  plan.set_fit("worker 1 needs 180 MiB of 128 MiB");
  plan.add_remedies("spec.subnetwork.coverage: 0.25");
  plan.add_remedies("spec.workers.batch: 2");
  EXPECT_THAT(
      Text(RenderPlan(plan, 200, kAscii)),
      HasSubstr("any of these makes it fit: spec.subnetwork.coverage: 0.25; spec.workers.batch: 2\n"));
}

TEST(RenderPlanDiff, ShowsWhatChangedAndNothingElse) {
  const v1::Plan before = ExamplePlan();
  EXPECT_EQ(Text(RenderPlanDiff(before, before, 100, kAscii)), "plans 1 and 1 do not differ\n");
  v1::Plan after = before;
  after.set_generation(2);
  after.set_reason("worker 1 ran out of memory");
  after.mutable_inputs()->set_coverage(0.25);
  after.mutable_workers(1)->mutable_memory()->set_peak(120 << 20);
  after.mutable_units(2)->clear_holders();
  const std::string text = Text(RenderPlanDiff(before, after, 100, kAscii));
  EXPECT_THAT(text, HasSubstr("worker 1 ran out of memory"));
  EXPECT_THAT(text, HasSubstr("coverage"));
  EXPECT_THAT(text, HasSubstr("worker 1 peak"));
  EXPECT_THAT(text, HasSubstr("1 of 4 units change holders: unit 2"));
  EXPECT_THAT(text, testing::Not(HasSubstr("worker 0")));
  EXPECT_THAT(text, testing::Not(HasSubstr("seed")));
}

TEST(RenderPlan, NoLineIsWiderThanTheTerminal) {
  v1::Plan plan = ExamplePlan();
  for (int u = 0; u < 100; ++u) plan.add_units()->add_holders(u % 2);
  for (int width = 20; width < 150; ++width) {
    for (const auto& line : RenderPlan(plan, width, kColor)) EXPECT_LE(DisplayWidth(line), width) << line;
  }
}

TEST(RenderMaskMatrix, WideMatricesBreakIntoBands) {
  v1::Plan plan = ExamplePlan();
  EXPECT_EQ(Text(RenderMaskMatrix(plan, 16, kAscii)), R"(units 0 to 1
worker 0   # o
worker 1   # .
units 2 to 3
worker 0   . #
worker 1   o #
units in order;~
)");
}

}  // namespace
}  // namespace tessera::cli

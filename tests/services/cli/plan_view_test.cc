#include "services/cli/plan_view.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/services/cli/example_job.h"

namespace tessera::cli {
namespace {

using testing::HasSubstr;

TEST(RenderPlan, ShowsMasksMemoryAndAlternatives) {
  EXPECT_EQ(Text(RenderPlan(ExamplePlan(), 120, kUnicode)),
            R"(plan 1: 2 workers, block forward masks, scheme cyclic, coverage 0.5, seed 1
  submitted
8.00M parameters, 6.00M of them maskable; spectral gap 0.2500; 3 holder sets; 300 steps
it fits

worker 0   ■ ▣ · ■
worker 1   ■ · ▣ ■
units in order; ■ always on  ▣ held  · absent

           coverage  of model   weights  gradients  optimizer  buffers  activations  transient     peak  sent/step
worker 0       50 %      75 %  24.0 MiB   24.0 MiB   48.0 MiB        -     80.0 MiB   4.00 MiB  180 MiB   12.0 MiB
worker 1       50 %      75 %  24.0 MiB   24.0 MiB   48.0 MiB        -     80.0 MiB   4.00 MiB  180 MiB   12.0 MiB
with ddp      100 %     100 %                                                                   300 MiB   24.0 MiB
with fsdp     100 %     100 %                                                                   220 MiB   36.0 MiB
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

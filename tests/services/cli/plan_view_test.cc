#include "services/cli/plan_view.h"

#include "services/cli/plan_diff.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/tessera/v1/defaults.h"
#include "scheduler/wire/plan_wire.h"
#include "tests/scheduler/plan/shapes.h"
#include "tests/services/cli/example_job.h"
#include "tests/status.h"

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

// Little memory, a slow processor and a slow link, one each: what they hold, how large their batches are and
// how long they take is a golden of the scheme `placed`.
TEST(RenderPlan, UnlikeWorkersArePlaced) {
  plan::ModelShape shape = plan::testing::LlamaShape(
      {.hidden = 64, .layers = 10, .heads = 4, .kv_heads = 2, .ffn = 128, .vocab = 256});
  shape.activations = {.batch = 8,
                       .sequence_length = 32,
                       .kinds = {{.saved = 500'000,
                                  .forward_transient = 90'000,
                                  .backward_transient = 150'000,
                                  .seconds_per_token = 1e-4}},
                       .base_saved = 70'000,
                       .head_transient = 200'000,
                       .end_peak = 260'000,
                       .head_seconds_per_token = 2e-4};
  v1::TrainingJob job;
  v1::TrainingJobSpec& spec = *job.mutable_spec();
  spec.mutable_workers()->set_count(4);
  spec.mutable_workers()->set_batch(8);
  spec.mutable_workers()->set_balance_batch(true);
  spec.mutable_data()->set_sequence_length(32);
  spec.mutable_subnetwork()->set_coverage(0.6);
  spec.mutable_schedule()->set_steps(100);
  spec::ApplyDefaults(&job);
  const std::vector<plan::WorkerCapacity> capacities = {
      {.usable_bytes = 20'000'000, .bytes_per_second = 1e7},
      {.usable_bytes = 6'000'000, .bytes_per_second = 1e7},
      {.usable_bytes = 20'000'000, .relative_speed = 0.5, .bytes_per_second = 1e7},
      {.usable_bytes = 20'000'000, .bytes_per_second = 5e5}};
  const auto plan = wire::PlanJob(shape, spec, {.reason = "submitted", .cores_per_worker = 1}, capacities);
  ASSERT_OK(plan);
  EXPECT_EQ(Text(RenderPlan(*plan, 160, kUnicode)),
            R"(plan 1: 4 workers, block forward masks, scheme placed, coverage 0.6, seed 1
  submitted
403k parameters, 296k of them maskable; spectral gap 0.0000; 3 holder sets; gradient variance x1.75; 100 steps; about 1.29 s per step
it fits

worker 0   ■ ■ ▣ ▣ ▣ ▣ ▣ ▣ ▣ ▣ ■
worker 1   ■ ■ · ▣ · ▣ · · ▣ · ■
worker 2   ■ ■ ▣ ▣ ▣ ▣ ▣ ▣ ▣ ▣ ■
worker 3   ■ ■ · · · · · · · · ■
units in order; ■ always on  ▣ held  · absent

          coverage  of model   weights  gradients  optimizer   buffers  activations  transient      peak      left  sent/step  batch  computing  sending
worker 0     100 %     100 %  1.54 MiB   1.54 MiB   3.07 MiB  7.50 KiB     9.07 MiB          -  14.2 MiB  4.86 MiB   1.88 MiB     15    0.576 s  0.197 s
worker 1      38 %      54 %   851 KiB    851 KiB   1.66 MiB  4.50 KiB     2.76 MiB          -  5.68 MiB  41.6 KiB   1.18 MiB      9    0.202 s  0.123 s
worker 2     100 %     100 %  1.54 MiB   1.54 MiB   3.07 MiB  3.50 KiB     4.23 MiB          -  9.23 MiB  9.84 MiB   1.88 MiB      7    0.538 s  0.197 s
worker 3       0 %      27 %   417 KiB    417 KiB    834 KiB     512 B      131 KiB          -  1.72 MiB  17.4 MiB    626 KiB      1   0.0128 s   1.28 s

                        peak   to ddp       left  sent/step   to ddp
with ddp            9.86 MiB   +0.0 %  -4.14 MiB   2.30 MiB   +0.0 %
with fsdp           6.81 MiB  -30.9 %  -1.09 MiB   3.36 MiB  +45.9 %
with fsdp+ac        3.40 MiB  -65.5 %   2.32 MiB   3.36 MiB  +45.9 %
with b-sdp          7.16 MiB  -27.4 %  -1.43 MiB   1.46 MiB  -36.7 %
with n-sdp          8.54 MiB  -13.4 %  -2.82 MiB   1.41 MiB  -38.7 %
with b-sdp+fsdp+ac  3.45 MiB  -65.0 %   2.27 MiB   2.09 MiB   -9.2 %
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

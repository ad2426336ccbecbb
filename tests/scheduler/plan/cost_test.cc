#include "scheduler/plan/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "scheduler/plan/process.h"
#include "tests/scheduler/plan/shapes.h"
#include "tests/status.h"

namespace tessera::plan {
namespace {

using testing::LlamaShape;
using testing::UniformShape;

MaskPlan Plan(const ModelShape& shape, const MaskRequest& request) {
  const auto plan = MakeMaskPlan(shape, request);
  EXPECT_OK(plan);
  return *plan;
}

int64_t Phase(const MemoryPrediction& memory, const std::string& name) {
  for (const PhasePeak& phase : memory.phases) {
    if (phase.name == name) return phase.bytes;
  }
  ADD_FAILURE() << "no phase " << name;
  return 0;
}

ModelShape Measured(ModelShape shape) {
  shape.activations = {.batch = 2,
                       .sequence_length = 8,
                       .kinds = {{.saved = 1000, .forward_transient = 300, .backward_transient = 700}},
                       .base_saved = 50,
                       .head_transient = 400};
  return shape;
}

TEST(PredictMemoryTest, StatesAreSixteenBytesPerHeldElement) {
  const ModelShape shape = LlamaShape();
  const MaskPlan plan = Plan(shape, {.workers = 4, .coverage = 0.5});
  for (int w = 0; w < 4; ++w) {
    const MemoryPrediction memory = PredictMemory(shape, plan, w, {});
    EXPECT_EQ(memory.parameters, 4 * plan.Elements(w));
    EXPECT_EQ(memory.gradients, 4 * plan.Elements(w));
    EXPECT_EQ(memory.optimizer, 8 * plan.Elements(w));
  }
}

TEST(PredictMemoryTest, TheEndOfBackwardCountsWhenTheEmbeddingOutweighsTheBlocks) {
  ModelShape shape = Measured(LlamaShape());
  const MaskPlan plan = Plan(shape, {.workers = 1});
  const StepShape step{.batch = 2, .sequence_length = 8};
  const int64_t before = Phase(PredictMemory(shape, plan, 0, step), "backward");
  shape.activations.end_peak = 10;  // less than the first block needs beside the same gradients
  EXPECT_EQ(Phase(PredictMemory(shape, plan, 0, step), "backward"), before);
  shape.activations.end_peak = 1000000;
  const MemoryPrediction memory = PredictMemory(shape, plan, 0, step);
  EXPECT_EQ(Phase(memory, "backward"),
            memory.parameters + memory.gradients + memory.optimizer + memory.buffers + 1000000);
}

TEST(PredictMemoryTest, StateRatioIsOneMinusMaskableShareTimesWithheldShare) {
  const ModelShape shape = LlamaShape({.layers = 10});
  const MaskPlan plan = Plan(shape, {.workers = 4, .coverage = 0.75});
  const MaskPlan whole = Plan(shape, {.workers = 4});
  int64_t maskable = 0;
  for (const Unit& unit : plan.units()) maskable += unit.always_on ? 0 : unit.elements;
  const double f = static_cast<double>(maskable) / static_cast<double>(shape.elements());
  EXPECT_NEAR(static_cast<double>(PredictMemory(shape, plan, 0, {}).parameters) /
                  static_cast<double>(PredictMemory(shape, whole, 0, {}).parameters),
              1 - f * (1 - 0.75), 1e-12);
}

TEST(PredictMemoryTest, PhasesAddUpByHand) {
  // One worker, three blocks of 1000 elements in one parameter each, nothing outside.
  const ModelShape shape = Measured(UniformShape(3));
  const MemoryPrediction memory =
      PredictMemory(shape, Plan(shape, {.workers = 1}), 0, {.batch = 2, .sequence_length = 8});
  const int64_t buffers = 16 * 16;             // 16 tokens
  const int64_t states = 12 * 3000 + buffers;  // and gradients of 4 * 3000 from backward to update
  EXPECT_EQ(memory.buffers, buffers);
  EXPECT_EQ(memory.activations, 3 * 1000 + 50);
  EXPECT_EQ(Phase(memory, "init"), 12 * 3000 + 4 * 1000);
  EXPECT_EQ(Phase(memory, "forward"), states + 3050 + 400);
  // The first block's is the last: of what is saved its own is left, and all gradients are there.
  EXPECT_EQ(Phase(memory, "backward"), states + 1050 + 700 + 4 * 3000);
  EXPECT_EQ(Phase(memory, "reduce"), states + 4 * 3000);
  EXPECT_EQ(Phase(memory, "update"), states + 4 * 3000);
  EXPECT_EQ(Phase(memory, "evaluate"), states + 50 + 1000 + 300);
  EXPECT_EQ(Phase(memory, "checkpoint"), states);
  EXPECT_EQ(memory.peak, Phase(memory, "backward"));
  // With several micro-steps the gradients of the first are there in the next one's forward pass.
  const MemoryPrediction summed = PredictMemory(shape, Plan(shape, {.workers = 1}), 0,
                                                {.batch = 2, .sequence_length = 8, .accumulation = 2});
  EXPECT_EQ(Phase(summed, "forward"), states + 4 * 3000 + 3050 + 400);
  EXPECT_EQ(Phase(summed, "backward"), states + 4 * 3000 + 3050 + 700);
  EXPECT_EQ(summed.transient, 700);
}

TEST(PredictMemoryTest, GradientsAndActivationsAreNotAtTheirLargestTogether) {
  ModelShape shape = Measured(UniformShape(8));
  shape.activations.kinds[0].saved = 50'000;  // more than a block's gradient of 4000
  const StepShape step{.batch = 2, .sequence_length = 8};
  const MemoryPrediction memory = PredictMemory(shape, Plan(shape, {.workers = 1}), 0, step);
  EXPECT_EQ(memory.gradients, 4 * 8000);
  EXPECT_EQ(Phase(memory, "backward"), 12 * 8000 + memory.buffers + 8 * 50'000 + 50 + 700 + 4 * 1000);
  // Shards come when the block before runs: what is received of the last block is in the reduction's buffers.
  const MaskPlan two = Plan(shape, {.workers = 2});
  const StepShape sharded{.batch = 2, .sequence_length = 8, .sharded = true};
  const MemoryPrediction shards = PredictMemory(shape, two, 0, sharded);
  EXPECT_EQ(shards.gradients, 4 * 4000);
  EXPECT_LT(shards.peak,
            PredictMemory(shape, two, 0, sharded, {0, std::vector<int64_t>(8, 0)}).peak + 4 * 1000);
}

TEST(PredictMemoryTest, AbsentBlocksSaveNothingAndAreStreamedInEvaluation) {
  const ModelShape shape = Measured(UniformShape(6));
  const MaskPlan plan = Plan(shape, {.workers = 2, .coverage = 0.5});  // holds 2 + 2 of 6
  const MemoryPrediction memory = PredictMemory(shape, plan, 0, {.batch = 2, .sequence_length = 8});
  EXPECT_EQ(memory.activations, 4 * 1000 + 50);
  const int64_t states = 12 * 4000 + memory.buffers;
  EXPECT_EQ(Phase(memory, "evaluate"), states + 50 + 1000 + 300 + 4 * 1000);
  EXPECT_EQ(Phase(memory, "checkpoint"), states + 4 * 1000);
}

TEST(PredictMemoryTest, ACheckpointedBlockNeedsWhatWasMeasuredOfIt) {
  ModelShape shape = Measured(UniformShape(3));
  shape.activations.kinds[0].checkpointed = {
      .saved = 100, .forward_transient = 500, .backward_transient = 1700};
  const MaskPlan plan = Plan(shape, {.workers = 1});
  const StepShape step{.batch = 2, .sequence_length = 8, .checkpointed = true};
  const MemoryPrediction memory = PredictMemory(shape, plan, 0, step);
  const int64_t states = 12 * 3000 + memory.buffers;
  EXPECT_EQ(memory.activations, 3 * 100 + 50);
  EXPECT_EQ(Phase(memory, "forward"), states + 350 + 500);
  EXPECT_EQ(Phase(memory, "backward"), states + 150 + 1700 + 4 * 3000);
  EXPECT_EQ(Phase(memory, "evaluate"), states + 50 + 100 + 500);
}

TEST(PredictMemoryTest, AnAbsentBlockSavesWhatItsShortcutDoes) {
  ModelShape shape = Measured(UniformShape(6));
  shape.activations.kinds[0].shortcut = {.saved = 70, .forward_transient = 20, .backward_transient = 9000};
  const MaskPlan plan = Plan(shape, {.workers = 2, .coverage = 0.5});  // holds 2 + 2 of 6, the last one
  for (const bool checkpointed : {false, true}) {
    shape.activations.kinds[0].checkpointed = {
        .saved = 1000, .forward_transient = 300, .backward_transient = 700};
    const StepShape step{.batch = 2, .sequence_length = 8, .checkpointed = checkpointed};
    const MemoryPrediction memory = PredictMemory(shape, plan, 0, step);
    EXPECT_EQ(memory.activations, 4 * 1000 + 2 * 70 + 50);
    EXPECT_LT(Phase(memory, "backward"), 16 * 4000 + memory.buffers + memory.activations + 9000)
        << "blocks behind it are done when its backward runs";
  }
}

TEST(PredictProcessTest, IsTheBaseTheSlackAndTheCommunicators) {
  ModelShape shape = UniformShape(4);
  const MaskPlan plan = Plan(shape, {.workers = 4, .coverage = 0.5});  // the world's set and one of two
  EXPECT_EQ(PredictProcess(shape, plan, 0, {}, 1000), 0) << "not measured";
  shape.process = {.base = 10'000, .slack = 0.25, .communicator = 7};
  constexpr int64_t kPeak = int64_t{200} << 20;
  const int64_t bytes = 10'000 + kClientBytes + kPeak / 4;
  EXPECT_EQ(PredictProcess(shape, plan, 0, {}, kPeak), bytes + 2 * 7);
  EXPECT_EQ(PredictProcess(shape, plan, 0, {.sharded = true}, kPeak), bytes + 4 * 7);
  EXPECT_EQ(PredictProcess(shape, plan, 0, {.backward_masking = true, .streamed = true}, kPeak),
            bytes + 3 * 7);
  EXPECT_EQ(PredictProcess(shape, Plan(shape, {.workers = 1}), 0, {}, kPeak), bytes);
}

TEST(HeapBesideTest, IsTheMeasuredRatioOrTheHolesOfASmallHeap) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  EXPECT_EQ(HeapBeside(0.5, 200 * kMiB), 100 * kMiB);
  EXPECT_EQ(HeapBeside(0.01, 200 * kMiB), 32 * kMiB);
  EXPECT_EQ(HeapBeside(0.01, 2 * kMiB), 3 * kMiB);
  EXPECT_EQ(HeapBeside(0, 0), 0);
}

TEST(HeapBesideTest, TensorsThatFitAreTheMostThatDo) {
  for (const double slack : {0.0, 0.1, 0.5, 3.0}) {
    for (int64_t bytes = 1000; bytes < int64_t{1} << 40; bytes *= 7) {
      const int64_t tensors = TensorsIn(slack, bytes);
      EXPECT_LE(tensors + HeapBeside(slack, tensors), bytes + 1) << slack;
      EXPECT_GT(tensors + 2 + HeapBeside(slack, tensors + 2), bytes) << slack << " " << bytes;
    }
  }
}

TEST(PredictMemoryTest, ActivationsGrowWithTokensPerMicroStepAlone) {
  const ModelShape shape = Measured(UniformShape(3));
  const MaskPlan plan = Plan(shape, {.workers = 1});
  const auto activations = [&](const StepShape& step) {
    return PredictMemory(shape, plan, 0, step).activations;
  };
  EXPECT_EQ(activations({.batch = 4, .sequence_length = 8}), 2 * (3 * 1000 + 50));
  EXPECT_EQ(activations({.batch = 2, .sequence_length = 16}), 2 * (3 * 1000 + 50));
  EXPECT_EQ(activations({.batch = 2, .sequence_length = 8, .accumulation = 7}), 3 * 1000 + 50);
}

TEST(PredictMemoryTest, MoreCoverageNeverNeedsLess) {
  const ModelShape shape = Measured(LlamaShape({.layers = 10}));
  int64_t before = 0;
  for (int holders = 1; holders <= 4; ++holders) {
    const MaskPlan plan = Plan(shape, {.workers = 4, .coverage = holders / 4.0});
    const int64_t peak = PredictMemory(shape, plan, 1, {.batch = 2, .sequence_length = 8}).peak;
    EXPECT_GT(peak, before);
    before = peak;
  }
}

TEST(PredictTrafficTest, IsThatOfARingAllReduceAmongTheHolders) {
  const ModelShape shape = UniformShape(4);
  const MaskPlan plan = Plan(shape, {.workers = 4, .coverage = 0.5});  // ends: 4 holders, middle: 2
  int64_t sum = 0;
  for (int w = 0; w < 4; ++w) sum += PredictTraffic(plan, w, 4);
  const int64_t bucket = 4 * 1000;
  EXPECT_EQ(sum, 4 * 2 * (2 * 3 * bucket / 4) + 2 * 2 * (2 * 1 * bucket / 2));
}

// Against training: tests/worker/train/regimes_test.cc.
TEST(PredictTrafficTest, CountsGathersScattersAndWhatOwnersSend) {
  const ModelShape shape = UniformShape(4);
  const MaskPlan plan = Plan(shape, {.workers = 4, .coverage = 0.5});  // holds both ends and 1 of 2
  EXPECT_EQ(PredictTraffic(plan, 0, StepShape{.accumulation = 2, .sharded = true}),
            2 * (2 * 3 * 250 * 12 + 1 * 500 * 12));
  EXPECT_EQ(PredictTraffic(plan, 0, StepShape{.gradient_wire_bytes = 2}), 2 * 2 * 3 * 500 + 2 * 1000);
  const int64_t held = PredictTraffic(plan, 0, StepShape{});
  EXPECT_EQ(PredictTraffic(plan, 0, StepShape{.backward_masking = true}), held + 2 * 3 * 1000);
  EXPECT_EQ(PredictTraffic(plan, 0, StepShape{.accumulation = 2, .backward_masking = true, .streamed = true}),
            held + 2 * 2 * 2 * 3 * 1000);
}

TEST(PredictMemoryTest, StatesOfEachRegime) {
  const ModelShape shape = UniformShape(4);
  const MaskPlan plan = Plan(shape, {.workers = 4, .coverage = 0.5});  // holds both ends and 1 of 2
  const auto states = [&](const StepShape& step) {
    const MemoryPrediction memory = PredictMemory(shape, plan, 0, step);
    return std::vector<int64_t>{memory.parameters, memory.gradients, memory.optimizer};
  };
  EXPECT_EQ(states({}), (std::vector<int64_t>{12000, 12000, 24000}));
  EXPECT_EQ(states({.sharded = true}), (std::vector<int64_t>{4000, 4000, 8000}));
  EXPECT_EQ(states({.backward_masking = true}), (std::vector<int64_t>{16000, 12000, 24000}));
  EXPECT_EQ(states({.backward_masking = true, .streamed = true}),
            (std::vector<int64_t>{12000, 12000, 24000}));
}

TEST(PredictTrafficTest, AUnitHeldByOneIsNotSent) {
  const ModelShape shape = UniformShape(4);
  const MaskPlan plan = Plan(shape, {.workers = 4, .coverage = 0.25, .ends_always_on = false});
  for (int w = 0; w < 4; ++w) EXPECT_EQ(PredictTraffic(plan, w, 4), 0);
  EXPECT_EQ(PredictTraffic(Plan(shape, {.workers = 1}), 0, 4), 0);
}

TEST(AlternativesTest, EachRegimeSavesWhatItIsFor) {
  ModelShape shape = Measured(LlamaShape());
  shape.activations.kinds[0].saved = 2'000'000;  // more than a block's input, as in any real block
  const StepShape step{.batch = 2, .sequence_length = 8};
  const auto alternatives = Alternatives(shape, {.workers = 8, .coverage = 0.5}, step);
  std::map<std::string, Alternative> by_name;
  for (const Alternative& alternative : alternatives) by_name[alternative.name] = alternative;
  ASSERT_EQ(by_name.size(), 6u);
  const Alternative& ddp = by_name["ddp"];
  EXPECT_EQ(ddp.memory, PredictMemory(shape, Plan(shape, {.workers = 8}), 0, step).peak);
  EXPECT_LT(by_name["fsdp"].memory, ddp.memory);
  EXPECT_GT(by_name["fsdp"].memory, 16 * shape.elements() / 8);
  EXPECT_LE(by_name["fsdp+ac"].memory, by_name["fsdp"].memory);
  EXPECT_LT(by_name["b-sdp"].memory, ddp.memory);
  EXPECT_LT(by_name["n-sdp"].memory, ddp.memory);
  EXPECT_EQ(by_name["b-sdp"].memory,
            PredictMemory(shape, Plan(shape, {.workers = 8, .coverage = 0.5}), 0, step).peak);
  // Blocks are gathered twice and scattered once, against twice for an all-reduce.
  EXPECT_GT(by_name["fsdp"].traffic, ddp.traffic);
  EXPECT_LT(by_name["fsdp"].traffic, ddp.traffic * 3 / 2);
  EXPECT_LT(by_name["b-sdp"].traffic, ddp.traffic);
}

TEST(AlternativesTest, OneWorkerSendsNothingAndKeepsAllStates) {
  const ModelShape shape = Measured(UniformShape(6));
  for (const Alternative& alternative : Alternatives(shape, {.workers = 1}, {})) {
    EXPECT_EQ(alternative.traffic, 0) << alternative.name;
    EXPECT_GE(alternative.memory, 16 * shape.elements()) << alternative.name;
  }
}

// The parts of a plan's peak that a placement weighs never promise less than the plan needs.
TEST(PeakCostsTest, SumToAtLeastThePeakOfAPlan) {
  ModelShape shape = Measured(LlamaShape({.layers = 8}));
  const StepShape regimes[] = {{.batch = 2, .sequence_length = 8},
                               {.batch = 4, .sequence_length = 8, .sharded = true, .checkpointed = true},
                               {.batch = 2, .sequence_length = 8, .backward_masking = true},
                               {.optimizer_slots = 0, .backward_masking = true, .streamed = true}};
  for (const StepShape& step : regimes) {
    for (const Granularity granularity : {Granularity::kBlock, Granularity::kNeuron}) {
      for (int holders = 1; holders <= 4; ++holders) {
        const MaskRequest request{.workers = 4, .granularity = granularity, .coverage = holders / 4.0};
        const auto costs = PeakCosts(shape, request, step);
        ASSERT_OK(costs);
        const MaskPlan plan = Plan(shape, request);
        for (int w = 0; w < 4; ++w) {
          int64_t sum = costs->always_on;
          size_t next = 0;
          for (int u = 0; u < static_cast<int>(plan.units().size()); ++u) {
            if (plan.units()[u].always_on) continue;
            const int64_t cost = costs->units[next++];
            if (plan.Holds(w, u)) sum += cost;
          }
          // What a streamed block's copy takes belongs to no unit.
          EXPECT_GE(static_cast<double>(sum),
                    0.98 * static_cast<double>(PredictMemory(shape, plan, w, step).peak));
        }
      }
    }
  }
}

TEST(PredictComputeSecondsTest, AnAbsentBlockUnderBackwardMaskingPaysForAllButItsWeightGradients) {
  ModelShape shape = Measured(UniformShape(4));
  shape.activations.kinds[0].seconds_per_token = 3e-3;
  shape.activations.kinds[0].forward_seconds_per_token = 1e-3;
  shape.activations.head_seconds_per_token = 1e-3;
  const MaskPlan plan = Plan(shape, {.workers = 4, .coverage = 0.5});  // holds both ends and 1 of 2
  EXPECT_NEAR(PredictComputeSeconds(shape, plan, 0, {}), 1e-3 + 3 * 3e-3, 1e-12);
  EXPECT_NEAR(PredictComputeSeconds(shape, plan, 0, {.backward_masking = true}), 1e-3 + 3 * 3e-3 + 2e-3,
              1e-12);
  EXPECT_NEAR(PredictComputeSeconds(shape, plan, 0, {.checkpointed = true}), 1e-3 + 3 * 4e-3, 1e-12);
}

TEST(PredictMemoryTest, AChunkBringsItsShareOfItsAxisActivations) {
  ModelShape shape = Measured(LlamaShape({.layers = 4}));
  shape.activations.kinds[0].axes = {{.axis = Axis::kFfn, .saved = 600}, {.axis = Axis::kHead, .saved = 200}};
  const StepShape step{.batch = 2, .sequence_length = 8};
  const MaskPlan plan = Plan(
      shape, {.workers = 2, .granularity = Granularity::kNeuron, .coverage = 0.5, .ends_always_on = false});
  EXPECT_EQ(PredictMemory(shape, plan, 0, step).activations, 50 + 4 * (1000 - 600 / 2 - 200 / 2));
}

// A plain block keeps 1000, a checkpointed one its output: of four, all, half, or none.
TEST(PredictMemoryTest, CheckpointingEveryOtherBlockSavesHalfAsMuch) {
  ModelShape shape = Measured(UniformShape(4));
  shape.activations.kinds[0].output = 100;
  shape.activations.head_seconds_per_token = 1e-3;
  shape.activations.kinds[0].seconds_per_token = 3e-3;
  shape.activations.kinds[0].forward_seconds_per_token = 1e-3;
  const MaskPlan plan = Plan(shape, {.workers = 1});
  const auto saved = [&](const StepShape& step) { return PredictMemory(shape, plan, 0, step).activations; };
  const StepShape never{.batch = 2, .sequence_length = 8},
      always{.batch = 2, .sequence_length = 8, .checkpointed = true},
      half{.batch = 2, .sequence_length = 8, .checkpointed = true, .checkpoint_every = 2};
  EXPECT_EQ(saved(never) - saved(always), 4 * 900);
  EXPECT_EQ(saved(never) - saved(half), 2 * 900);
  EXPECT_NEAR(PredictComputeSeconds(shape, plan, 0, half) - PredictComputeSeconds(shape, plan, 0, never),
              16 * 2e-3, 1e-12);
}

TEST(NearestCoverageTest, IsTheLargestThatFits) {
  const ModelShape shape = UniformShape(12);
  const StepShape step{};
  MaskRequest request{.workers = 4, .coverage = 1};
  const int64_t whole = PredictMemory(shape, Plan(shape, request), 0, step).peak;
  EXPECT_EQ(NearestCoverage(shape, request, step, MemoryLimits(4, whole)), 1);
  EXPECT_LT(NearestCoverage(shape, request, step, MemoryLimits(4, whole - 1)), 1);
  EXPECT_EQ(NearestCoverage(shape, request, step, MemoryLimits(4, 16 * 2000)),
            0);  // less than the always-on ends

  for (int64_t limit = whole / 2; limit < whole; limit += whole / 17) {
    request.coverage = NearestCoverage(shape, request, step, MemoryLimits(4, limit));
    ASSERT_GT(request.coverage, 0);
    const MaskPlan plan = Plan(shape, request);
    for (int w = 0; w < 4; ++w) ASSERT_LE(PredictMemory(shape, plan, w, step).peak, limit);
    // One unit more on every worker is more than fits.
    MaskRequest more = request;
    more.coverage = std::min(1.0, request.coverage + 0.1 + 1e-9);
    const MaskPlan larger = Plan(shape, more);
    int64_t peak = 0;
    for (int w = 0; w < 4; ++w) peak = std::max(peak, PredictMemory(shape, larger, w, step).peak);
    EXPECT_GT(peak, limit);
  }
}

}  // namespace
}  // namespace tessera::plan

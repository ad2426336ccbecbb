// Gradient dropping in every regime that it composes with: keeping everything is the regime itself to the
// bit, keeping some leaves all holders of a unit equal, and what does not compose is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/dropping_cost.h"
#include "scheduler/plan/layer_budgets.h"
#include "tests/status.h"
#include "tests/worker/train/gradient_memory.h"
#include "tests/worker/train/training_rig.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

using plan::Granularity;

enum class Mode { kForward, kBackwardStored, kBackwardStreamed };

// (granularity, mode, checkpointed, wire)
using Regime = std::tuple<Granularity, Mode, bool, WireType>;

std::string Name(const Regime& regime) {
  const auto& [granularity, mode, checkpointed, wire] = regime;
  const char* modes[] = {"Forward", "BackwardStored", "BackwardStreamed"};
  return absl::StrCat(granularity == Granularity::kBlock ? "Block" : "Neuron", modes[static_cast<int>(mode)],
                      checkpointed ? "Checkpointed" : "", wire == WireType::kBFloat16 ? "Bf16" : "");
}

TrainingRig MakeRig(const Regime& regime) {
  const auto& [granularity, mode, checkpointed, wire] = regime;
  TrainingRig rig;
  rig.model = ToyModel(4);
  rig.data = ToyDataset(20000, 3);  // ranks contribute unequal numbers of targets
  rig.ranks = 3;
  rig.coverage = 2.0 / 3;
  rig.granularity = granularity;
  rig.options.accumulation = 2;
  rig.options.batch = 1;
  rig.options.schedule.total_steps = 4;
  rig.options.clip_norm = 0.3;
  rig.options.store.backward_masking = mode != Mode::kForward;
  rig.options.store.streamed = mode == Mode::kBackwardStreamed;
  rig.options.runner.checkpoint_every = checkpointed ? 1 : 0;
  rig.options.reducer.wire = wire;
  return rig;
}

DroppingOptions Dropping(const TrainingRig& rig, const char* rule, double density) {
  std::vector<plan::LayerDemand> layers;
  for (const auto& parameter : rig.model.shape().parameters) {
    layers.push_back({.elements = parameter.elements(), .floor = parameter.dims.size() < 2 ? 1.0 : 0.0});
  }
  DroppingOptions options;
  options.rule = *FindDroppingRule(rule);
  options.importance_share = options.rule->needs().default_share;
  if (options.rule->needs().residual) options.residual = ResidualKeep::kBf16;
  options.kept = *plan::LayerBudgets(density, layers);
  return options;
}

class DroppingRegimesTest : public testing::TestWithParam<Regime> {};

TEST_P(DroppingRegimesTest, KeepingEverythingIsTheRegimeAndKeepingSomeLeavesHoldersEqual) {
  TrainingRig rig = MakeRig(GetParam());
  const std::vector<RankOutcome> dense = rig.Train();
  rig.options.dropping = Dropping(rig, "rotation", 1);
  const std::vector<RankOutcome> whole = rig.Train();
  for (int rank = 0; rank < rig.ranks; ++rank) {
    ASSERT_OK(dense[rank].result) << dense[rank].result.status();
    ASSERT_OK(whole[rank].result) << whole[rank].result.status();
    EXPECT_TRUE(SameBits(dense[rank], whole[rank])) << "rank " << rank;
  }
  for (const char* rule : {"rotation", "second_moment", "cyclic_top_k", "magnitude"}) {
    rig.options.dropping = Dropping(rig, rule, 0.4);
    const std::vector<RankOutcome> some = rig.Train();  // compares its holders every second step
    for (int rank = 0; rank < rig.ranks; ++rank) {
      ASSERT_OK(some[rank].result) << rule << ": " << some[rank].result.status();
      EXPECT_TRUE(SameBits(some[0], some[rank])) << rule;
      if (rig.options.dropping->picks_alone()) continue;  // indices for everybody
      EXPECT_LT(some[rank].reports.steps.back().traffic_bytes, dense[rank].reports.steps.back().traffic_bytes)
          << rule;
    }
  }
}

// With bf16 on the wire the comparison of holders failed once in several hundred trainings, without dropping
// too, on a machine under heavy load; it has not come back in 1,200 trainings of DISABLED_Bf16, which is here
// to be repeated. Until it is understood the table has float only.
INSTANTIATE_TEST_SUITE_P(All, DroppingRegimesTest,
                         testing::Combine(testing::Values(Granularity::kBlock, Granularity::kNeuron),
                                          testing::Values(Mode::kForward, Mode::kBackwardStored,
                                                          Mode::kBackwardStreamed),
                                          testing::Bool(), testing::Values(WireType::kFloat)),
                         [](const auto& info) { return Name(info.param); });

INSTANTIATE_TEST_SUITE_P(DISABLED_Bf16, DroppingRegimesTest,
                         testing::Combine(testing::Values(Granularity::kBlock),
                                          testing::Values(Mode::kBackwardStored), testing::Values(false),
                                          testing::Values(WireType::kBFloat16)),
                         [](const auto& info) { return Name(info.param); });

// (granularity, backward masking, checkpointed): sharded among the holders.
using ShardedRegime = std::tuple<Granularity, bool, bool>;

Regime Unsharded(const ShardedRegime& regime) {
  const auto& [granularity, backward, checkpointed] = regime;
  return {granularity, backward ? Mode::kBackwardStreamed : Mode::kForward, checkpointed, WireType::kFloat};
}

class DroppingShardsTest : public testing::TestWithParam<ShardedRegime> {};

TEST_P(DroppingShardsTest, KeepingEverythingIsTheRegimeAndKeepingSomeSendsLess) {
  TrainingRig rig = MakeRig(Unsharded(GetParam()));
  rig.options.store.sharded = true;
  const std::vector<RankOutcome> dense = rig.Train();
  rig.options.dropping = Dropping(rig, "rotation", 1);
  const std::vector<RankOutcome> whole = rig.Train();
  for (int rank = 0; rank < rig.ranks; ++rank) {
    ASSERT_OK(dense[rank].result) << dense[rank].result.status();
    ASSERT_OK(whole[rank].result) << whole[rank].result.status();
    for (const auto& [group, flats] : dense[rank].groups) {
      for (size_t i = 0; i < flats.size(); ++i) {
        EXPECT_TRUE(at::equal(flats[i], whole[rank].groups.at(group)[i])) << rank << " group " << group;
      }
    }
  }
  for (const char* rule : {"rotation", "second_moment", "cyclic_top_k", "sketch_top_k"}) {
    rig.options.dropping = Dropping(rig, rule, 0.4);
    const std::vector<RankOutcome> some = rig.Train();  // every step compares what the holders have selected
    for (int rank = 0; rank < rig.ranks; ++rank) {
      ASSERT_OK(some[rank].result) << rule << ": " << some[rank].result.status();
      EXPECT_LT(some[rank].reports.steps.back().traffic_bytes, dense[rank].reports.steps.back().traffic_bytes)
          << rule;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DroppingShardsTest,
                         testing::Combine(testing::Values(Granularity::kBlock, Granularity::kNeuron),
                                          testing::Bool(), testing::Bool()),
                         [](const auto& info) { return Name(Unsharded(info.param)); });

// With frozen elements, one step moves the kept ones and no others, over all shards.
TEST(DroppingShardsMemoryTest, OneStepMovesTheKeptElementsOfAllShards) {
  TrainingRig rig;
  rig.ranks = 3;
  rig.options.store.sharded = true;
  rig.options.schedule.total_steps = 1;
  rig.options.schedule.warmup_steps = 0;
  rig.options.dropping = Dropping(rig, "rotation", 0.3);
  rig.options.dropping->freeze_unsent = true;
  const std::vector<RankOutcome> outcomes = rig.Train();
  const auto& parameters = rig.model.shape().parameters;
  for (int p : {2, 3}) {
    at::Tensor initial = at::empty(parameters[p].dims);
    rig.model.Initialize(p, rig.options.seed, initial);
    int64_t moved = 0;
    for (const RankOutcome& outcome : outcomes) {
      ASSERT_OK(outcome.result);
      moved += at::count_nonzero((outcome.weights[p] - initial).nan_to_num(0)).item<int64_t>();
    }
    EXPECT_NEAR(static_cast<double>(moved), static_cast<double>(rig.options.dropping->kept[p]), 1)
        << parameters[p].name;
  }
}

TEST(DroppingShardsMemoryTest, TrafficAndMemoryAreThePlans) {
  for (const char* rule : {"rotation", "second_moment", "cyclic_top_k"}) {
    TrainingRig rig;
    rig.ranks = 3;
    rig.coverage = 2.0 / 3;
    rig.options.store.sharded = true;
    rig.options.accumulation = 2;
    rig.options.batch = 1;
    const plan::StepShape step{.accumulation = 2, .sharded = true};
    const int64_t dense = rig.Train()[0].reports.steps[2].traffic_bytes;
    const plan::MaskPlan plan = rig.Plan();
    const int64_t small = dense - plan::PredictTraffic(plan, 0, step);
    rig.options.dropping = Dropping(rig, rule, 0.3);
    plan::Dropping costs{.kept = rig.options.dropping->kept};
    if (std::string(rule) == "cyclic_top_k") costs.picks = plan::PickTraffic::kBitmap;
    if (std::string(rule) == "second_moment") costs.picks = plan::PickTraffic::kMoments;
    const int64_t measured = rig.Train()[0].reports.steps[2].traffic_bytes - small;
    const auto planned =
        static_cast<double>(plan::PredictDroppedTraffic(rig.model.shape(), plan, 0, step, costs));
    EXPECT_NEAR(static_cast<double>(measured), planned, 0.02 * planned) << rule;
  }
  TrainingRig rig;
  rig.options.store.sharded = true;
  const plan::StepShape step{.batch = 2, .sequence_length = ToyDataset::kLength, .sharded = true};
  EXPECT_EQ(GradientMemory(rig), plan::PredictMemory(rig.model.shape(), rig.Plan(), 0, step).gradients);
  rig.options.dropping = Dropping(rig, "rotation", 0.3);
  const plan::DroppedMemory planned = plan::PredictDroppedMemory(rig.model.shape(), rig.Plan(), 0, step,
                                                                 {.kept = rig.options.dropping->kept});
  EXPECT_EQ(GradientMemory(rig), planned.memory.gradients);
}

// Of each parameter, all elements are measured by exactly one rank, whatever the mask; and what is measured
// is the optimizer's second moment.
TEST(LayerStatisticsTest, TheOwnersMeasureEveryElementOnce) {
  struct Statistics final : ReportSink {
    void OnStatistics(int64_t step, int64_t, const std::vector<LayerStatistic>& layers) override {
      steps.push_back(step);
      last = layers;
    }
    std::vector<int64_t> steps;
    std::vector<LayerStatistic> last;
  };
  for (const auto& [granularity, sharded] :
       {std::pair(Granularity::kBlock, false), std::pair(Granularity::kNeuron, false),
        std::pair(Granularity::kNeuron, true)}) {
    TrainingRig rig;
    rig.ranks = 3;
    rig.coverage = 2.0 / 3;
    rig.granularity = granularity;
    rig.options.store.sharded = sharded;
    rig.options.schedule.total_steps = 8;
    rig.options.dropping = Dropping(rig, "rotation", 0.4);
    rig.options.dropping_first_step = 2;
    rig.options.statistics_step = 2;
    rig.options.statistics_interval = 3;
    const plan::MaskPlan plan = rig.Plan();
    std::vector<Statistics> sinks(rig.ranks);
    RunRanks(rig.ranks, [&](int rank, World& world) {
      TrainerSignals signals;
      const TrainerContext context{&rig.model, &plan, &world, &rig.data, &rig.data, &sinks[rank], &signals};
      auto trainer = Trainer::Create(rig.options, context);
      ASSERT_OK(trainer);
      EXPECT_OK((*trainer)->Run());
    });
    std::vector<int64_t> elements(rig.model.shape().parameters.size(), 0);
    for (const Statistics& sink : sinks) {
      EXPECT_THAT(sink.steps, testing::ElementsAre(2, 5, 8));
      for (const LayerStatistic& layer : sink.last) {
        elements[layer.parameter] += layer.elements;
        EXPECT_GT(layer.second_moment, 0);
        // Cauchy and Schwarz: (sum of roots)^2 <= elements * sum.
        EXPECT_LE(layer.root_second_moment * layer.root_second_moment,
                  1.0001 * static_cast<double>(layer.elements) * layer.second_moment);
        EXPECT_GT(layer.squared_gradient, 0);
        EXPECT_GE(layer.spike, 1);
      }
    }
    for (size_t p = 0; p < elements.size(); ++p) {
      EXPECT_EQ(elements[p], rig.model.shape().parameters[p].elements())
          << rig.model.shape().parameters[p].name;
    }
  }
}

}  // namespace
}  // namespace tessera::worker

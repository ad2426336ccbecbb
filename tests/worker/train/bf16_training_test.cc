// Training with bf16 computation in every regime: master weights and what the holders share stay fp32.
#include <gtest/gtest.h>

#include <tuple>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/layer_budgets.h"
#include "tests/status.h"
#include "tests/worker/train/same_run.h"
#include "tests/worker/train/training_rig.h"

namespace tessera::worker {
namespace {

using plan::Granularity;

// (granularity, backward masking, sharded)
using Regime = std::tuple<Granularity, bool, bool>;

std::string Name(const Regime& regime) {
  const auto& [granularity, backward, sharded] = regime;
  return absl::StrCat(granularity == Granularity::kBlock ? "Block" : "Neuron",
                      backward ? "Backward" : "Forward", sharded ? "Sharded" : "");
}

class Bf16TrainingTest : public testing::TestWithParam<Regime> {
 protected:
  static TrainingRig Rig() {
    const auto& [granularity, backward, sharded] = GetParam();
    TrainingRig rig;
    rig.model = ToyModel(4);
    rig.ranks = 2;
    rig.coverage = 0.5;
    rig.granularity = granularity;
    rig.options.store.backward_masking = backward;
    rig.options.store.streamed = backward && sharded;
    rig.options.store.sharded = sharded;
    rig.options.schedule.total_steps = 20;
    return rig;
  }

  static void ExpectMastersOnAllHolders(const std::vector<RankOutcome>& out) {
    for (const RankOutcome& rank : out) {
      ASSERT_OK(rank.result);
      for (const auto& [group, flats] : rank.groups) {
        for (const at::Tensor& flat : flats) EXPECT_EQ(flat.scalar_type(), at::kFloat);
      }
      if (!std::get<2>(GetParam())) EXPECT_TRUE(SameBits(out[0], rank));
    }
  }
};

TEST_P(Bf16TrainingTest, ItTrainsAsFp32DoesAndRecomputedBlocksAreTheSame) {
  TrainingRig rig = Rig();
  const std::vector<RankOutcome> exact = rig.Train();
  rig.options.bf16 = true;
  const std::vector<RankOutcome> half = rig.Train();
  ExpectMastersOnAllHolders(half);
  rig.options.runner.checkpoint_every = 1;
  ExpectSameRun(half, rig.Train());
  EXPECT_NE(half[0].result->loss, exact[0].result->loss) << "nothing is computed in bf16";
  // Losses fall from 2.94 by some tenths in these steps.
  EXPECT_NEAR(*half[0].result->validation_loss, *exact[0].result->validation_loss, 0.05);
}

TEST_P(Bf16TrainingTest, AResumedRunIsTheUninterruptedOneAlsoWhereGradientsAreDropped) {
  const auto& [granularity, backward, sharded] = GetParam();
  for (const bool dropped : {false, true}) {
    TrainingRig rig = Rig();
    rig.options.bf16 = true;
    rig.options.schedule.total_steps = 8;
    rig.options.checkpoint_interval = 4;
    if (dropped) {
      std::vector<plan::LayerDemand> layers;
      for (const auto& parameter : rig.model.shape().parameters) {
        layers.push_back({.elements = parameter.elements()});
      }
      rig.options.dropping.emplace();
      rig.options.dropping->rule = *FindDroppingRule("rotation");
      rig.options.dropping->importance_share = rig.options.dropping->rule->needs().default_share;
      rig.options.dropping->kept = *plan::LayerBudgets(0.4, layers);
    }
    const auto folder = [&](const char* what) {
      return absl::StrCat(testing::TempDir(), "/bf16-", what, static_cast<int>(granularity), backward,
                          sharded, dropped);
    };
    rig.options.checkpoint_directory = folder("whole");
    const std::vector<RankOutcome> whole = rig.Train();
    ExpectMastersOnAllHolders(whole);
    ASSERT_GE(whole[0].reports.checkpoints.size(), 2u);
    rig.options.resume_from = whole[0].reports.checkpoints[0];
    rig.options.checkpoint_directory = folder("resumed");
    ExpectSameRun(whole, rig.Train());
  }
}

INSTANTIATE_TEST_SUITE_P(All, Bf16TrainingTest,
                         testing::Combine(testing::Values(Granularity::kBlock, Granularity::kNeuron),
                                          testing::Bool(), testing::Bool()),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace tessera::worker

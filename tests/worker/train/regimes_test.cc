// The invariants of every regime and composition, as one table: whatever is masked, sharded, streamed
// or recomputed, some steps of training give the weights that a dense simulation of the method gives, holders
// agree bit for bit, and each rank keeps exactly the states that it should.
#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/status.h"
#include "tests/worker/train/dense_simulation.h"
#include "tests/worker/train/training_rig.h"
#include "worker/data/sampler.h"
#include "worker/parallel/checkpointed_block.h"
#include "worker/profile/memory_counter.h"
#include "worker/train/step_record.h"

namespace tessera::worker {
namespace {

using plan::Granularity;

enum class Mode { kForward, kBackwardStored, kBackwardStreamed };

// (granularity, mode, sharded, checkpointed)
using Regime = std::tuple<Granularity, Mode, bool, bool>;

std::string Name(const Regime& regime) {
  const auto& [granularity, mode, sharded, checkpointed] = regime;
  const char* modes[] = {"Forward", "BackwardStored", "BackwardStreamed"};
  return absl::StrCat(granularity == Granularity::kBlock ? "Block" : "Neuron", modes[static_cast<int>(mode)],
                      sharded ? "Sharded" : "", checkpointed ? "Checkpointed" : "");
}

TrainingRig MakeRig(const Regime& regime, int ranks, double coverage, const std::string& optimizer) {
  const auto& [granularity, mode, sharded, checkpointed] = regime;
  TrainingRig rig;
  rig.model = ToyModel(4);
  rig.data = ToyDataset(20000, 3);  // ranks contribute unequal numbers of targets
  rig.ranks = ranks;
  rig.coverage = coverage;
  rig.granularity = granularity;
  rig.options.optimizer.name = optimizer;
  rig.options.accumulation = 2;
  rig.options.batch = 1;
  rig.options.schedule.total_steps = 3;
  rig.options.clip_norm = 0.3;
  rig.options.store.backward_masking = mode != Mode::kForward;
  rig.options.store.streamed = mode == Mode::kBackwardStreamed;
  rig.options.store.sharded = sharded;
  rig.options.runner.checkpoint_every = checkpointed ? 1 : 0;
  rig.options.runner.residual = ResidualScale::kNone;
  return rig;
}

class RegimesTest : public testing::TestWithParam<Regime> {};

TEST_P(RegimesTest, TrainsLikeTheDenseSimulation) {
  for (const std::string optimizer : {"adamw", "sgd"}) {
    for (const int ranks : {1, 2, 3, 4}) {
      // At 3/4 holder counts differ, and at 2 of 4 some ranks share no unit but the always-on ones.
      for (const double coverage : {1.0, 0.5, 0.75}) {
        if (coverage * ranks < 1 || (ranks == 2 ? coverage == 0.75 : coverage == 1 && ranks != 1)) continue;
        if (optimizer == "sgd" && ranks != 3) continue;  // the regimes do not know the optimizer
        if (std::get<3>(GetParam()) && ranks % 2 == 0) continue;
        SCOPED_TRACE(absl::StrCat(optimizer, " on ", ranks, " ranks at coverage ", coverage));
        const TrainingRig rig = MakeRig(GetParam(), ranks, coverage, optimizer);
        const auto out = rig.Train();
        ASSERT_NO_FATAL_FAILURE(ExpectLikeDense(rig, out));
        for (const RankOutcome& rank : out) {
          EXPECT_EQ(rank.result->validation_loss, out[0].result->validation_loss);
        }
      }
    }
  }
}

// Parameters, gradients and moments are counted to the byte. Backward masking keeps all weights where they
// are stored; shards are a holder's part, rounded up.
TEST_P(RegimesTest, KeepsExactlyItsStates) {
  InstallMemoryCounter();
  constexpr int kRanks = 4;
  const TrainingRig rig = MakeRig(GetParam(), kRanks, 0.5, "adamw");
  const plan::MaskPlan plan = rig.Plan();
  const auto& [granularity, mode, sharded, checkpointed] = GetParam();
  for (int rank = 0; rank < kRanks; ++rank) {
    const int64_t before = LiveTensorBytes();
    const auto store = UnitStore::Create(rig.model, plan, rank, rig.options.store);
    ASSERT_OK(store);
    int64_t expected = 0;
    for (const UnitGroup& group : (*store)->groups()) {
      const int64_t k = static_cast<int64_t>(group.holders.size());
      const int64_t kept = sharded ? (group.elements + k - 1) / k : group.elements;
      if (group.Holds(rank)) expected += 3 * 4 * kept;  // gradients come and go
      if (!group.Holds(rank) && mode == Mode::kBackwardStored && !sharded) expected += 4 * group.elements;
    }
    EXPECT_EQ(LiveTensorBytes() - before, expected) << "rank " << rank;
  }
}

TEST_P(RegimesTest, SendsWhatItsFormulaSays) {
  constexpr int kRanks = 4;
  const TrainingRig rig = MakeRig(GetParam(), kRanks, 0.5, "adamw");
  const auto out = rig.Train();
  const plan::MaskPlan plan = rig.Plan();
  const auto& [granularity, mode, sharded, checkpointed] = GetParam();
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_OK(out[rank].result) << out[rank].result.status();
    double expected = (kRanks - 1) * static_cast<double>(sizeof(StepRecord) + sizeof(double));
    const double passes = rig.options.accumulation;
    for (const UnitGroup& group : GroupUnits(rig.model.shape(), plan)) {
      const double k = static_cast<double>(group.holders.size()),
                   bytes = 4.0 * static_cast<double>(group.elements);
      const bool base = group.block == plan::kNoBlock;
      if (group.Holds(rank) && !sharded) expected += 2 * (k - 1) / k * bytes;
      // Gathered before forward and before backward, what is outside the blocks once; scattered after it.
      if (group.Holds(rank) && sharded) {
        const size_t elements = (group.elements + group.holders.size() - 1) / group.holders.size();
        const double shard = 4.0 * static_cast<double>(elements);
        expected += passes * (base ? 2 : 3) * (k - 1) * shard;
      }
      if (k == kRanks || mode == Mode::kForward) continue;
      const bool streamed = sharded || mode == Mode::kBackwardStreamed;
      expected += (streamed ? 2 * passes : 1) * (kRanks - 1) / kRanks * bytes;
    }
    // Every collective rounds to whole bytes.
    EXPECT_NEAR(static_cast<double>(out[rank].reports.steps[1].traffic_bytes), expected, 200);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RegimesTest,
                         testing::Combine(testing::Values(Granularity::kBlock, Granularity::kNeuron),
                                          testing::Values(Mode::kForward, Mode::kBackwardStored,
                                                          Mode::kBackwardStreamed),
                                          testing::Bool(), testing::Bool()),
                         [](const auto& info) { return Name(info.param); });

// With the same batch everywhere nothing is averaged away: backward masking is exact.
TEST(BackwardMaskingTest, WithOneBatchEverywhereEqualsDenseTraining) {
  TrainingRig dense, masked;
  dense.data = masked.data = ToyDataset(9);  // one sample
  dense.options.batch = masked.options.batch = 1;
  masked.ranks = 4;
  masked.coverage = 0.5;
  masked.options.store.backward_masking = true;
  const auto a = dense.Train(), b = masked.Train();
  ASSERT_TRUE(a[0].result.ok() && b[0].result.ok()) << a[0].result.status() << b[0].result.status();
  for (const RankOutcome& rank : b) EXPECT_LT(LargestDifference(rank.weights, a[0].weights), 2e-4);
}

TEST(CheckpointingTest, GradientsAreTheSameBitForBit) {
  for (const int every : {1, 2}) {
    TrainingRig plain, checkpointed;
    checkpointed.options.runner.checkpoint_every = every;
    const auto a = plain.Train(), b = checkpointed.Train();
    ASSERT_OK(a[0].result);
    ASSERT_OK(b[0].result);
    EXPECT_TRUE(SameBits(a[0], b[0]));
  }
}

TEST(CheckpointingTest, TheSecondRunDrawsTheFirstOnesNumbersAndLeavesTheGeneratorAlone) {
  const at::Tensor weight = at::linspace(-1, 1, 64).requires_grad_(true);
  const BlockBody body([&](const at::Tensor& x, double scale) {
    return x + at::dropout(x * weight, 0.5, /*train=*/true) * scale;
  });
  std::vector<at::Tensor> gradients;
  std::vector<double> next;
  for (const bool checkpointed : {false, true}) {
    at::manual_seed(7);
    const at::Tensor x = at::linspace(0, 3, 64).requires_grad_(true);
    const at::Tensor y = checkpointed ? RunCheckpointed(body, x, 2) : body(x, 2);
    at::rand({3});  // others draw in between
    y.square().sum().backward();
    gradients.push_back(x.grad());
    gradients.push_back(weight.grad().clone());
    weight.mutable_grad().reset();
    next.push_back(at::rand({}).item<double>());
  }
  EXPECT_TRUE(at::equal(gradients[0], gradients[2]));
  EXPECT_TRUE(at::equal(gradients[1], gradients[3]));
  EXPECT_EQ(next[0], next[1]);
}

TEST(WireTest, BFloat16GradientsHalveTheBytesAndKeepHoldersEqual) {
  for (const bool sharded : {false, true}) {
    TrainingRig wide, narrow;
    wide.ranks = narrow.ranks = 3;
    wide.options.store.sharded = narrow.options.store.sharded = sharded;
    narrow.options.reducer.wire = WireType::kBFloat16;
    const auto a = wide.Train(), b = narrow.Train();
    ASSERT_OK(a[0].result);
    ASSERT_OK(b[0].result);
    const int64_t elements = wide.model.shape().elements();
    const double saved =
        static_cast<double>(a[0].reports.steps[1].traffic_bytes - b[0].reports.steps[1].traffic_bytes);
    EXPECT_NEAR(saved, (sharded ? 1 : 2) * 2.0 / 3 * static_cast<double>(elements) * 2, 100);
    if (!sharded) EXPECT_TRUE(SameBits(b[0], b[2]));
    // bf16 keeps 8 bits: a gradient is off by up to 1/256, an update of Adam by less than its size.
    EXPECT_NEAR(*b[0].result->validation_loss, *a[0].result->validation_loss, 0.02);
  }
}

TEST(RegularizerTest, StochasticDepthSkipsBlocksAndNoneIsTheSameBits) {
  TrainingRig plain, skipped;
  skipped.options.runner.stochastic_depth = 0.5;
  const auto a = plain.Train(), b = skipped.Train(), c = skipped.Train();
  ASSERT_OK(a[0].result);
  ASSERT_OK(b[0].result);
  EXPECT_FALSE(SameBits(a[0], b[0]));
  EXPECT_TRUE(SameBits(b[0], c[0])) << "draws are a function of seed, step and rank";
}

}  // namespace
}  // namespace tessera::worker

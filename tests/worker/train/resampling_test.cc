// Masks that change while training: in every regime the run is the dense simulation with the masks of the
// step, holders agree bit for bit after each change, and a run resumed anywhere is the uninterrupted one.
#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/layer_budgets.h"
#include "scheduler/plan/mask_schedule.h"
#include "tests/status.h"
#include "tests/worker/train/dense_simulation.h"
#include "tests/worker/train/same_run.h"
#include "tests/worker/train/training_rig.h"
#include "worker/dropping/residual_mover.h"
#include "worker/parallel/state_mover.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

using plan::Granularity;

enum class Mode { kForward, kBackwardStored, kBackwardStreamed };

// (granularity, mode, sharded)
using Regime = std::tuple<Granularity, Mode, bool>;

std::string Name(const Regime& regime) {
  const auto& [granularity, mode, sharded] = regime;
  const char* modes[] = {"Forward", "BackwardStored", "BackwardStreamed"};
  return absl::StrCat(granularity == Granularity::kBlock ? "Block" : "Neuron", modes[static_cast<int>(mode)],
                      sharded ? "Sharded" : "");
}

class ResamplingTest : public testing::TestWithParam<Regime> {
 protected:
  static TrainingRig Rig() {
    const auto& [granularity, mode, sharded] = GetParam();
    TrainingRig rig;
    rig.data = ToyDataset(20000, 3);  // ranks contribute unequal numbers of targets
    rig.ranks = 4;
    rig.coverage = 0.5;
    rig.granularity = granularity;
    rig.options.batch = 1;
    rig.options.schedule.total_steps = 7;
    rig.options.clip_norm = 0.3;
    rig.options.masks = {.every = 2, .seed = 3};
    rig.options.store.backward_masking = mode != Mode::kForward;
    rig.options.store.streamed = mode == Mode::kBackwardStreamed;
    rig.options.store.sharded = sharded;
    rig.options.runner.residual = ResidualScale::kNone;
    return rig;
  }

  static plan::StepShape Step() {
    const auto& [granularity, mode, sharded] = GetParam();
    return {.batch = 1,
            .sequence_length = ToyDataset::kLength,
            .sharded = sharded,
            .backward_masking = mode != Mode::kForward,
            .streamed = mode == Mode::kBackwardStreamed};
  }
};

TEST_P(ResamplingTest, TrainsLikeTheDenseSimulationWithTheMasksOfTheStep) {
  for (const std::string optimizer : {"adamw", "sgd"}) {
    TrainingRig rig = Rig();
    rig.options.optimizer.name = optimizer;
    const auto out = rig.Train();
    ExpectLikeDense(rig, out);
  }
}

TEST_P(ResamplingTest, SendsWhatThePlanSays) {
  const TrainingRig rig = Rig();
  const auto out = rig.Train();
  const plan::MaskPlan first = rig.Plan();
  const plan::ModelShape& shape = rig.model.shape();
  const auto masks = plan::MasksOfRun(shape, first, rig.options.masks, rig.options.schedule.total_steps);
  ASSERT_EQ(masks.size(), 4u);
  const auto most = plan::PredictResampling(shape, masks, Step());
  int64_t all = 0;
  for (size_t p = 1; p < masks.size(); ++p) {
    const auto moves = plan::PredictMoves(shape, masks[p - 1], masks[p], Step());
    const size_t step = p * static_cast<size_t>(rig.options.masks.every);
    for (int rank = 0; rank < rig.ranks; ++rank) {
      ASSERT_OK(out[rank].result) << out[rank].result.status();
      const auto& steps = out[rank].reports.steps;
      const int64_t usual = steps[step - 1].traffic_bytes;
      // Fingerprints and checksums are compared besides.
      const int64_t compared =
          int64_t{8} * (rig.ranks - 1) *
          (1 + (rig.options.store.sharded ? 0 : static_cast<int64_t>(GroupUnits(shape, masks[p]).size())));
      EXPECT_NEAR(static_cast<double>(steps[step].traffic_bytes - usual),
                  static_cast<double>(moves[rank].sent + compared), 100)
          << "rank " << rank << " step " << step;
      EXPECT_LE(moves[rank].sent, most.workers[rank].sent);
      all += moves[rank].sent;
    }
  }
  EXPECT_GT(all, 0);
}

TEST_P(ResamplingTest, AResumedRunIsTheUninterruptedOneBeforeAtAndAfterAChange) {
  const auto& [granularity, mode, sharded] = GetParam();
  for (const char* rule : {"", "second_moment", "cyclic_top_k"}) {  // the first: dense gradients
    TrainingRig rig = Rig();
    rig.options.schedule.total_steps = 9;
    rig.options.masks.every = 3;
    rig.options.checkpoint_interval = 2;
    rig.options.retention.keep = 10;
    if (*rule != 0) {
      std::vector<plan::LayerDemand> layers;
      for (const auto& parameter : rig.model.shape().parameters) {
        layers.push_back({.elements = parameter.elements()});
      }
      rig.options.dropping.emplace();
      rig.options.dropping->rule = *FindDroppingRule(rule);
      const RuleNeeds needs = rig.options.dropping->rule->needs();
      rig.options.dropping->importance_share = needs.default_share;
      if (needs.residual) {
        rig.options.dropping->residual =
            granularity == Granularity::kBlock ? ResidualKeep::kFp32 : ResidualKeep::kBf16;
      }
      rig.options.dropping->refresh = 2;
      rig.options.dropping->kept = *plan::LayerBudgets(0.4, layers);
    }
    const auto folder = [&](const char* what, size_t i) {
      return absl::StrCat(testing::TempDir(), "/resampling-", what, i, static_cast<int>(granularity),
                          static_cast<int>(mode), sharded, rule);
    };
    rig.options.checkpoint_directory = folder("whole", 0);
    const std::vector<RankOutcome> whole = rig.Train();
    ASSERT_OK(whole[0].result) << whole[0].result.status();
    ASSERT_GE(whole[0].reports.checkpoints.size(), 4u);  // after 2, 4, 6 (a change comes next) and 8 steps
    for (const size_t i : {size_t{0}, size_t{1}, size_t{2}}) {
      rig.options.resume_from = whole[0].reports.checkpoints[i];
      rig.options.checkpoint_directory = folder("resumed", i);
      SCOPED_TRACE(rig.options.resume_from);
      ExpectSameRun(whole, rig.Train());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResamplingTest,
                         testing::Combine(testing::Values(Granularity::kBlock, Granularity::kNeuron),
                                          testing::Values(Mode::kForward, Mode::kBackwardStored,
                                                          Mode::kBackwardStreamed),
                                          testing::Bool()),
                         [](const auto& info) { return Name(info.param); });

TEST(ResamplingOfEverythingTest, IsNoResamplingToTheBit) {
  for (const Granularity granularity : {Granularity::kBlock, Granularity::kNeuron}) {
    TrainingRig rig;
    rig.ranks = 2;
    rig.granularity = granularity;
    const auto still = rig.Train();
    rig.options.masks.every = 2;
    const auto changing = rig.Train();
    for (int rank = 0; rank < rig.ranks; ++rank) {
      ASSERT_OK(changing[rank].result) << changing[rank].result.status();
      EXPECT_EQ(changing[rank].result->loss, still[rank].result->loss);
      EXPECT_TRUE(SameBits(changing[rank], still[rank]));
    }
  }
}

// Of each element, the sum over the ranks stays; who still holds it and is not its owner keeps what it had.
TEST(ResamplingResidualTest, NothingThatWasNotSentIsLostAndWhoHoldsAUnitKeepsItsOwn) {
  InstallMemoryCounter();
  for (const auto& [granularity, type] :
       {std::pair(Granularity::kBlock, at::kFloat), std::pair(Granularity::kNeuron, at::kBFloat16)}) {
    TrainingRig rig;
    rig.ranks = 4;
    rig.coverage = 0.5;
    rig.granularity = granularity;
    const plan::ModelShape& shape = rig.model.shape();
    const plan::MaskPlan before = rig.Plan(), after = plan::MasksOfPeriod(shape, before, 3, 1);
    const int bytes = type == at::kFloat ? 4 : 2;
    const auto without = plan::PredictMoves(shape, before, after, {});
    const auto with = plan::PredictMoves(shape, before, after, {}, bytes);
    // By rank, of the slices that it holds.
    using Slices = std::map<int, at::Tensor>;
    const auto slices_of = [&](const plan::MaskPlan& plan, int rank, const at::Tensor& residual) {
      Slices slices;
      int64_t begin = 0;
      for (const UnitGroup& group : GroupUnits(shape, plan)) {
        if (!group.Holds(rank)) continue;
        for (const GroupSlot& slot : group.slots) {
          for (size_t s = 0; s < plan.slices().size(); ++s) {
            const plan::Slice& slice = plan.slices()[s];
            if (slice.unit != slot.slice.unit || slice.parameter != slot.slice.parameter ||
                slice.begin != slot.slice.begin) {
              continue;
            }
            slices[static_cast<int>(s)] =
                residual.narrow(0, begin + slot.offset, slice.elements).to(at::kFloat);
          }
        }
        begin += group.elements;
      }
      return slices;
    };
    std::vector<Slices> had(rig.ranks), has(rig.ranks);
    RunRanks(rig.ranks, [&](int rank, World& world) {
      at::Tensor residual = at::empty({before.Elements(rank)}, type);
      residual.copy_(at::sin(at::arange(residual.numel(), at::kFloat) * (rank + 1)));
      had[rank] = slices_of(before, rank, residual);
      const int64_t sent = world.bytes_sent();
      const auto moved = MoveResidual(shape, before, after, residual, world.all());
      ASSERT_OK(moved);
      EXPECT_EQ(world.bytes_sent() - sent, with[rank].sent - without[rank].sent);
      EXPECT_GE(with[rank].peak, without[rank].peak + bytes * after.Elements(rank));
      EXPECT_EQ(moved->scalar_type(), type);
      has[rank] = slices_of(after, rank, *moved);
    });
    int moves = 0;
    for (int s = 0; s < static_cast<int>(before.slices().size()); ++s) {
      at::Tensor was = at::zeros({before.slices()[s].elements}), is = at::zeros_like(was);
      for (int rank = 0; rank < rig.ranks; ++rank) {
        if (had[rank].contains(s)) was += had[rank][s];
        if (has[rank].contains(s)) is += has[rank][s];
        const bool both = had[rank].contains(s) && has[rank].contains(s);
        if (both && after.Holders(after.slices()[s].unit)[0] != rank) {
          EXPECT_TRUE(at::equal(had[rank][s], has[rank][s])) << s << " rank " << rank;
        }
        moves += had[rank].contains(s) && !has[rank].contains(s) ? 1 : 0;
      }
      // Sums of up to four numbers below 1; bf16 has eight bits.
      EXPECT_TRUE(at::allclose(was, is, 0, type == at::kFloat ? 1e-6 : 2e-2)) << s;
    }
    EXPECT_GT(moves, 0);
  }
}

// Of all ranks together, who are threads of one process: nobody's peak is above the plan's, and what they
// hold is the same before and after.
TEST(ResamplingMemoryTest, StaysWithinThePlan) {
  InstallMemoryCounter();
  constexpr int kRanks = 4;
  TrainingRig rig;
  rig.model = ToyModel(8);
  rig.ranks = kRanks;
  rig.coverage = 0.5;
  for (const Granularity granularity : {Granularity::kBlock, Granularity::kNeuron}) {
    for (const bool sharded : {false, true}) {
      rig.granularity = granularity;
      const plan::ModelShape& shape = rig.model.shape();
      const plan::MaskPlan first = rig.Plan(), second = plan::MasksOfPeriod(shape, first, 3, 1);
      int64_t predicted = 0;
      for (const auto& move : plan::PredictMoves(shape, first, second, {.sharded = sharded})) {
        predicted += move.peak;
      }
      const int64_t before = LiveTensorBytes();
      std::vector<std::unique_ptr<UnitStore>> stores(kRanks);
      for (int rank = 0; rank < kRanks; ++rank) {
        stores[rank] = *UnitStore::Create(rig.model, first, rank, {.sharded = sharded});
        stores[rank]->Initialize(1);
      }
      const int64_t held = LiveTensorBytes() - before;
      ResetPeakTensorBytes();
      RunRanks(kRanks, [&](int rank, World& world) {
        auto moved = MoveStates(std::move(stores[rank]), second, world.all());
        ASSERT_OK(moved);
        stores[rank] = *std::move(moved);
      });
      EXPECT_LE(PeakTensorBytes() - before, predicted);
      EXPECT_GT(PeakTensorBytes() - before, held);
      if (!sharded) EXPECT_EQ(LiveTensorBytes() - before, held);
    }
  }
}

}  // namespace
}  // namespace tessera::worker

#include "worker/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "tests/status.h"
#include "tests/worker/train/training_rig.h"
#include "worker/train/holder_checksum.h"

namespace tessera::worker {
namespace {

// Adam divides by the root of the second moment: an element whose gradient is near zero may turn a
// rounding of 1e-7 into a step of another size. 6 steps of at most 0.01 each bound that; 2e-4 is what
// sums in another order amount to here with room to spare.
constexpr double kOrderOfSums = 2e-4;

TEST(TrainerTest, OneProcessEqualsRanksAtEqualTotalBatch) {
  TrainingRig one, four;
  one.options.batch = 8;
  four.ranks = 4;
  const auto a = one.Train(), b = four.Train();
  ASSERT_TRUE(a[0].result.ok() && b[0].result.ok()) << a[0].result.status() << b[0].result.status();
  EXPECT_LT(LargestDifference(a[0].weights, b[0].weights), kOrderOfSums);
  for (size_t i = 0; i < a[0].reports.steps.size(); ++i) {
    EXPECT_NEAR(a[0].reports.steps[i].loss, b[0].reports.steps[i].loss, 1e-4);
    EXPECT_NEAR(a[0].reports.steps[i].gradient_norm, b[0].reports.steps[i].gradient_norm, 1e-3);
  }
}

TEST(TrainerTest, RanksWithUnequalTokenCountsEqualOneProcess) {
  TrainingRig one, two;
  one.data = two.data = ToyDataset(20000, 3);
  one.options.batch = 4;
  two.ranks = 2;
  const auto a = one.Train(), b = two.Train();
  ASSERT_OK(a[0].result);
  ASSERT_OK(b[0].result);
  EXPECT_EQ(a[0].result->tokens, b[0].result->tokens);
  EXPECT_LT(a[0].result->tokens, 6 * 4 * 8) << "the test needs ignored targets";
  EXPECT_LT(LargestDifference(a[0].weights, b[0].weights), kOrderOfSums);
}

TEST(TrainerTest, AccumulationEqualsOneLargeBatch) {
  TrainingRig large, small;
  large.data = small.data = ToyDataset(20000, 3);
  large.options.batch = 6;
  small.options.batch = 2;
  small.options.accumulation = 3;
  const auto a = large.Train(), b = small.Train();
  ASSERT_OK(a[0].result);
  ASSERT_OK(b[0].result);
  EXPECT_LT(LargestDifference(a[0].weights, b[0].weights), kOrderOfSums);
}

TEST(TrainerTest, HoldersAgreeBitForBitAndTrainTheirShareOnly) {
  TrainingRig rig;
  rig.ranks = 4;
  rig.coverage = 0.5;
  const auto out = rig.Train();
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_OK(out[rank].result) << out[rank].result.status();
    for (int other = 0; other < rank; ++other) EXPECT_TRUE(SameBits(out[rank], out[other]));
    // Every rank reaches the same conclusions.
    for (size_t i = 0; i < out[0].reports.steps.size(); ++i) {
      EXPECT_EQ(out[rank].reports.steps[i].gradient_norm, out[0].reports.steps[i].gradient_norm);
      EXPECT_EQ(out[rank].reports.steps[i].loss, out[0].reports.steps[i].loss);
    }
    EXPECT_EQ(out[rank].result->validation_loss, out[0].result->validation_loss);
  }
  EXPECT_LT(*out[0].result->validation_loss, out[0].reports.evaluations.front().second);
}

TEST(TrainerTest, FullCoverageIsDataParallelismBitForBit) {
  TrainingRig full, cyclic;
  full.ranks = cyclic.ranks = 3;
  full.scheme = plan::Scheme::kFull;
  cyclic.scheme = plan::Scheme::kCyclic;
  const plan::MaskPlan plan = cyclic.Plan();
  for (size_t u = 0; u < plan.units().size(); ++u) EXPECT_EQ(plan.Holders(static_cast<int>(u)).size(), 3u);
  const auto a = full.Train(), b = cyclic.Train();
  ASSERT_OK(a[0].result);
  ASSERT_OK(b[0].result);
  EXPECT_TRUE(SameBits(a[0], b[0]));
  EXPECT_TRUE(SameBits(a[0], a[1]));
}

TEST(TrainerTest, ClipFactorIsTheDenseOne) {
  TrainingRig one, two;
  one.options.batch = 4;
  two.ranks = 2;
  one.options.clip_norm = two.options.clip_norm = 0.01;
  const auto a = one.Train(), b = two.Train();
  ASSERT_OK(a[0].result);
  ASSERT_OK(b[0].result);
  ASSERT_GT(a[0].reports.steps[0].gradient_norm, 0.01) << "the test needs clipping";
  // The first step sees the same weights: the norm differs by roundings of sums only.
  EXPECT_NEAR(b[1].reports.steps[0].gradient_norm / a[0].reports.steps[0].gradient_norm, 1, 1e-5);
}

TEST(TrainerTest, TrafficIsWhatThePlanSaysBesidesTheRecord) {
  TrainingRig rig;
  rig.ranks = 4;
  rig.coverage = 0.5;
  const auto out = rig.Train();
  const plan::MaskPlan plan = rig.Plan();
  for (int rank = 0; rank < 4; ++rank) {
    int64_t expected = 3 * static_cast<int64_t>(sizeof(StepRecord) + sizeof(double));
    for (size_t u = 0; u < plan.units().size(); ++u) {
      const int64_t holders = static_cast<int64_t>(plan.Holders(static_cast<int>(u)).size());
      if (!plan.Holds(rank, static_cast<int>(u))) continue;
      expected += 2 * (holders - 1) * plan.units()[u].elements * 4 / holders;
    }
    EXPECT_NEAR(static_cast<double>(out[rank].reports.steps[1].traffic_bytes), static_cast<double>(expected),
                8);
  }
}

TEST(TrainerTest, OneRanksWishStopsAllAtTheSameStep) {
  TrainingRig rig;
  rig.ranks = 3;
  rig.options.schedule.total_steps = 50;
  rig.on_step = [](int rank, const StepReport& report, TrainerSignals& signals) {
    if (rank == 1 && report.step == 3) signals.stop = true;
  };
  for (const RankOutcome& outcome : rig.Train()) {
    ASSERT_OK(outcome.result);
    EXPECT_TRUE(outcome.result->stopped);
    EXPECT_EQ(outcome.result->step, 4);
  }
}

// Counts the groups that are asked for.
class CountingWorld final : public World {
 public:
  explicit CountingWorld(World* world) : world_(world) {}
  Communicator& all() override { return world_->all(); }
  absl::StatusOr<Communicator*> Group(absl::Span<const int> ranks, Channel channel) override {
    groups.emplace(ranks.begin(), ranks.end());
    return world_->Group(ranks, channel);
  }
  int64_t bytes_sent() const override { return world_->bytes_sent(); }
  std::string waiting() const override { return world_->waiting(); }
  std::set<std::vector<int>> groups;

 private:
  World* world_;
};

TEST(TrainerTest, ASlowLoaderDoesNotRunIntoTheRendezvousTimeout) {
  TrainingRig rig;
  rig.ranks = 4;
  rig.coverage = 0.5;
  const plan::MaskPlan plan = rig.Plan();
  RunRanks(4, [&](int /*rank*/, World& world) {
    CountingWorld counting(&world);
    struct LoadSink final : ReportSink {
      CountingWorld* world = nullptr;
      size_t groups_at_loading = 0;
      void OnPhase(TrainerPhase phase, int64_t) override {
        if (phase == TrainerPhase::kLoading) groups_at_loading = world->groups.size();
      }
    } sink;
    sink.world = &counting;
    TrainerSignals signals;
    const TrainerContext context{&rig.model, &plan, &counting, &rig.data, nullptr, &sink, &signals};
    auto trainer = Trainer::Create(rig.options, context);
    ASSERT_OK(trainer);
    EXPECT_OK((*trainer)->Step());
    EXPECT_GT(sink.groups_at_loading, 0u);
    EXPECT_EQ(sink.groups_at_loading, counting.groups.size()) << "all are connected before loading";
  });
}

TEST(TrainerTest, TiedWeightsTrain) {
  TrainingRig rig;
  rig.model = ToyModel(2, /*tied=*/true);
  rig.ranks = 2;
  const auto out = rig.Train();
  ASSERT_OK(out[0].result) << out[0].result.status();
  EXPECT_TRUE(SameBits(out[0], out[1]));
}

TEST(TrainerTest, ALossThatIsNotFiniteEndsTheRunWithTheReason) {
  TrainingRig rig;
  rig.options.schedule.peak = 1e30;
  rig.options.schedule.warmup_steps = 0;
  const auto out = rig.Train();
  EXPECT_TRUE(absl::IsInternal(out[0].result.status()));
  EXPECT_NE(out[0].result.status().message().find("is not finite"), std::string::npos)
      << out[0].result.status();
}

TEST(HolderChecksumTest, ADivergedHolderIsNamed) {
  TrainingRig rig;
  rig.ranks = 3;
  const plan::MaskPlan plan = rig.Plan();
  RunRanks(3, [&](int rank, World& world) {
    auto store = UnitStore::Create(rig.model, plan, rank);
    (*store)->Initialize(1);
    EXPECT_OK(CompareHolders(**store, world.all()));
    if (rank == 2) (*store)->held()[3].moments[0][5] += 1e-12;
    const absl::Status status = CompareHolders(**store, world.all());
    EXPECT_TRUE(absl::IsInternal(status));
    EXPECT_NE(status.message().find(plan.units()[3].name), std::string::npos) << status;
    EXPECT_NE(status.message().find("rank(s) 2 "), std::string::npos) << status;
  });
}

// Two ranks with shares of 3 and 1 read 25 samples: in the last step only the first has one left.
TEST(Trainer, EndsWhenTheDataRunOutThoughRanksRunOutUnevenly) {
  TrainingRig two;
  two.ranks = 2;
  two.options.schedule.total_steps = 7;
  two.options.shares = {3, 1};
  two.options.end_of_data = 25;
  TrainingRig one = two;
  one.ranks = 1;
  one.options.shares = {4};
  const auto a = two.Train(), b = one.Train();
  for (const auto* outcome : {&a[0], &a[1], &b[0]}) {
    ASSERT_OK(outcome->result);
    EXPECT_EQ(outcome->result->step, 7);
    EXPECT_EQ(outcome->result->tokens, 25 * ToyDataset::kLength);
    EXPECT_FALSE(outcome->result->stopped);
  }
  // Weighted by what each contributed, an idle rank included. Sums are rounded in another order, and Adam
  // divides by small numbers.
  EXPECT_LT(LargestDifference(a[0].weights, b[0].weights), 1e-4);
  EXPECT_TRUE(SameBits(a[0], a[1]));
}

}  // namespace
}  // namespace tessera::worker

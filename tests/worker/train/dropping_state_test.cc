// What gradient dropping keeps from step to step: residuals in checkpoints, shares of workers, drift, and
// memory under a real limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/dropping_cost.h"
#include "scheduler/plan/layer_budgets.h"
#include "tests/status.h"
#include "tests/worker/train/training_rig.h"
#include "worker/checkpoint/residual_state.h"
#include "worker/data/synthetic_dataset.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

using plan::Granularity;

DroppingOptions Dropping(const plan::ModelShape& shape, const char* rule, ResidualKeep residual,
                         double density = 0.3) {
  std::vector<plan::LayerDemand> layers;
  for (const auto& parameter : shape.parameters) {
    layers.push_back({.elements = parameter.elements(), .floor = parameter.dims.size() < 2 ? 1.0 : 0.0});
  }
  DroppingOptions options;
  options.rule = *FindDroppingRule(rule);
  options.importance_share = options.rule->needs().default_share;
  options.residual = residual;
  options.kept = *plan::LayerBudgets(density, layers);
  return options;
}

void ExpectSameStates(const RankOutcome& a, const RankOutcome& b, int rank) {
  for (const auto& [group, flats] : a.groups) {
    for (size_t i = 0; i < flats.size(); ++i) {
      EXPECT_TRUE(at::equal(flats[i], b.groups.at(group)[i])) << "rank " << rank << " group " << group;
    }
  }
}

// (rule, residual, granularity, sharded)
using Kept = std::tuple<const char*, ResidualKeep, Granularity, bool>;
class ResidualCheckpointTest : public testing::TestWithParam<Kept> {
 protected:
  static TrainingRig Rig() {
    const auto& [rule, residual, granularity, sharded] = GetParam();
    TrainingRig rig;
    rig.model = ToyModel(4);
    rig.ranks = 3;
    rig.coverage = 2.0 / 3;
    rig.granularity = granularity;
    rig.options.store.sharded = sharded;
    rig.options.accumulation = 2;
    rig.options.schedule.total_steps = 10;
    rig.options.dropping = Dropping(rig.model.shape(), rule, residual);
    rig.options.dropping->refresh = 3;
    rig.options.checkpoint_interval = 5;
    rig.options.retention.keep = 10;
    return rig;
  }
  static std::string Folder(const char* what) {
    const auto& [rule, residual, granularity, sharded] = GetParam();
    return absl::StrCat(testing::TempDir(), "/residual-", what, "-", rule, static_cast<int>(residual),
                        static_cast<int>(granularity), sharded);
  }
};

TEST_P(ResidualCheckpointTest, AResumedRunIsTheUninterruptedOne) {
  TrainingRig rig = Rig();
  rig.options.checkpoint_directory = Folder("whole");
  const std::vector<RankOutcome> whole = rig.Train();
  ASSERT_OK(whole[0].result) << whole[0].result.status();
  ASSERT_GE(whole[0].reports.checkpoints.size(), 2u);
  rig.options.resume_from = whole[0].reports.checkpoints[0];
  rig.options.checkpoint_directory = Folder("resumed");
  const std::vector<RankOutcome> resumed = rig.Train();
  for (int rank = 0; rank < rig.ranks; ++rank) {
    ASSERT_OK(resumed[rank].result) << resumed[rank].result.status();
    EXPECT_EQ(resumed[rank].result->loss, whole[rank].result->loss);
    ExpectSameStates(whole[rank], resumed[rank], rank);
  }
}

// Of all ranks that `rig` has, what a checkpoint hands them, by parameter.
std::vector<at::Tensor> LoadedResiduals(const TrainingRig& rig, const std::string& checkpoint) {
  std::vector<at::Tensor> total;
  for (const auto& parameter : rig.model.shape().parameters) {
    total.push_back(at::zeros(parameter.dims, at::kDouble));
  }
  const plan::MaskPlan plan = rig.Plan();
  for (int rank = 0; rank < rig.ranks; ++rank) {
    const auto store = *UnitStore::Create(rig.model, plan, rank, rig.options.store);
    const auto residual = LoadResidual(checkpoint, *store, at::kFloat);
    EXPECT_OK(residual);
    for (const HeldPiece& piece : ResidualPieces(*store, *residual)) {
      total[piece.piece.parameter]
          .narrow(piece.piece.dim, piece.piece.begin, piece.piece.length)
          .add_(piece.states[0].second);
    }
  }
  return total;
}

// Whoever resumes: nothing that was not sent is lost.
TEST_P(ResidualCheckpointTest, OtherRanksAndMasksGetWhatTheFirstHadInAll) {
  TrainingRig rig = Rig();
  rig.options.schedule.total_steps = 5;
  rig.options.checkpoint_directory = Folder("first");
  const std::vector<RankOutcome> first = rig.Train();
  ASSERT_OK(first[0].result) << first[0].result.status();
  const std::string& checkpoint = first[0].result->checkpoint;
  const std::vector<at::Tensor> before = LoadedResiduals(rig, checkpoint);
  double size = 0;
  for (const at::Tensor& value : before) size += value.abs().sum().item<double>();
  EXPECT_GT(size, 0);
  for (const auto& [ranks, coverage, granularity] :
       {std::tuple(2, 1.0, Granularity::kBlock), std::tuple(4, 0.5, Granularity::kNeuron),
        std::tuple(1, 1.0, Granularity::kBlock)}) {
    TrainingRig other = rig;
    other.ranks = ranks;
    other.coverage = coverage;
    other.granularity = granularity;
    const std::vector<at::Tensor> after = LoadedResiduals(other, checkpoint);
    for (size_t p = 0; p < before.size(); ++p) {
      // Sums of a few fp32 numbers in another order.
      EXPECT_TRUE(at::allclose(before[p], after[p], 1e-5, 1e-5))
          << ranks << " " << rig.model.shape().parameters[p].name;
    }
  }
}

std::string NameOf(const testing::TestParamInfo<Kept>& info) {
  const auto& [rule, residual, granularity, sharded] = info.param;
  return absl::StrCat(rule, residual == ResidualKeep::kBf16 ? "_bf16" : "_fp32",
                      granularity == Granularity::kNeuron ? "_neurons" : "_blocks", sharded ? "_fsdp" : "");
}

INSTANTIATE_TEST_SUITE_P(
    All, ResidualCheckpointTest,
    testing::Values(Kept{"cyclic_top_k", ResidualKeep::kFp32, Granularity::kBlock, false},
                    Kept{"cyclic_top_k", ResidualKeep::kBf16, Granularity::kNeuron, false},
                    Kept{"sketch_top_k", ResidualKeep::kFp32, Granularity::kNeuron, false},
                    Kept{"rotation", ResidualKeep::kBf16, Granularity::kBlock, false},
                    Kept{"magnitude", ResidualKeep::kFp32, Granularity::kBlock, false},
                    Kept{"magnitude", ResidualKeep::kBf16, Granularity::kNeuron, false},
                    Kept{"cyclic_top_k", ResidualKeep::kFp32, Granularity::kBlock, true}),
    NameOf);

// Every sample is the same one, so that every rank has the same gradient.
class OneSample final : public Dataset {
 public:
  int64_t samples() const override { return all_.samples(); }
  absl::Status Check(const ModelInput&) const override { return absl::OkStatus(); }
  absl::StatusOr<Batch> Read(std::span<const Sample> samples) const override {
    return all_.Of(std::vector<int64_t>(samples.size(), 5));
  }

 private:
  ToyDataset all_{20000};
};

TEST(WorkerSharesTest, WhereGradientsAreEqualItDoesNotMatterWhoContributes) {
  TrainingRig rig;
  rig.ranks = 3;
  rig.options.dropping = Dropping(rig.model.shape(), "rotation", ResidualKeep::kNone, 0.6);
  const auto train = [&] {
    const plan::MaskPlan plan = rig.Plan();
    const OneSample data;
    std::vector<at::Tensor> weights;
    RunRanks(rig.ranks, [&](int rank, World& world) {
      ReportSink reports;
      TrainerSignals signals;
      auto trainer =
          Trainer::Create(rig.options, {&rig.model, &plan, &world, &data, nullptr, &reports, &signals});
      ASSERT_OK(trainer);
      const auto result = (*trainer)->Run();
      ASSERT_OK(result);
      if (rank == 0) weights = KeptWeights((*trainer)->store());
    });
    return weights;
  };
  const std::vector<at::Tensor> equal = train();
  rig.options.dropping->worker_shares = {0.25, 1, 0.5};
  // A wrong divisor or a segment that is missing would change weights by some learning rates, 1e-2 each. What
  // is left is the order of sums, which Adam's division makes larger.
  EXPECT_LT(LargestDifference(equal, train()), 2e-3);
}

TEST(WorkerSharesTest, HoldersStayEqualAndTrafficIsThePlansUnderMasksAndResiduals) {
  for (const auto& [granularity, rule] :
       {std::pair(Granularity::kBlock, "cyclic_top_k"), std::pair(Granularity::kNeuron, "rotation")}) {
    TrainingRig rig;
    rig.ranks = 4;
    rig.coverage = 0.75;
    rig.granularity = granularity;
    rig.options.batch = 1;
    rig.options.accumulation = 2;
    const bool residual = std::string(rule) == "cyclic_top_k";
    rig.options.dropping =
        Dropping(rig.model.shape(), rule, residual ? ResidualKeep::kFp32 : ResidualKeep::kNone, 0.45);
    rig.options.dropping->worker_shares = {1, 1, 1.0 / 3, 2.0 / 3};
    const std::vector<RankOutcome> outcomes = rig.Train();  // compares its holders every second step
    const plan::MaskPlan plan = rig.Plan();
    plan::Dropping costs{.kept = rig.options.dropping->kept,
                         .worker_shares = rig.options.dropping->worker_shares};
    if (residual) costs.picks = plan::PickTraffic::kBitmap;
    rig.options.dropping.reset();
    const std::vector<RankOutcome> dense = rig.Train();
    for (int rank = 0; rank < rig.ranks; ++rank) {
      ASSERT_OK(outcomes[rank].result) << outcomes[rank].result.status();
      EXPECT_TRUE(SameBits(outcomes[0], outcomes[rank])) << rank;
      const int64_t small =
          dense[rank].reports.steps[4].traffic_bytes - plan::PredictTraffic(plan, rank, plan::StepShape());
      const auto planned = static_cast<double>(
          plan::PredictDroppedTraffic(rig.model.shape(), plan, rank, plan::StepShape(), costs));
      // Segments are cut in whole elements of small buckets.
      EXPECT_NEAR(static_cast<double>(outcomes[rank].reports.steps[4].traffic_bytes - small), planned,
                  0.03 * planned)
          << rule << " rank " << rank;
    }
  }
}

TEST(LayerDriftTest, AnyRanksDriftMakesAllMeasureInTheSameStep) {
  struct Steps final : ReportSink {
    void OnStatistics(int64_t step, int64_t, const std::vector<LayerStatistic>&) override {
      steps.push_back(step);
    }
    std::vector<int64_t> steps;
  };
  const auto measured = [](double drift) {
    TrainingRig rig;
    rig.ranks = 2;
    rig.options.schedule.total_steps = 45;
    rig.options.dropping = Dropping(rig.model.shape(), "rotation", ResidualKeep::kNone);
    rig.options.statistics_step = 2;
    rig.options.drift = drift;
    const plan::MaskPlan plan = rig.Plan();
    std::vector<Steps> sinks(2);
    RunRanks(2, [&](int rank, World& world) {
      TrainerSignals signals;
      auto trainer = Trainer::Create(rig.options,
                                     {&rig.model, &plan, &world, &rig.data, nullptr, &sinks[rank], &signals});
      ASSERT_OK(trainer);
      EXPECT_OK((*trainer)->Run());
    });
    EXPECT_EQ(sinks[0].steps, sinks[1].steps);
    return sinks[0].steps;
  };
  EXPECT_THAT(measured(0), testing::ElementsAre(2));
  // Early in a run second moments move all the time: seen at steps 20 and 40, measured with the next.
  EXPECT_THAT(measured(1e-4), testing::ElementsAre(2, 21, 41));
  EXPECT_THAT(measured(0.99), testing::ElementsAre(2));
}

// BERT small (Turc et al. 2019: 4 layers of 512) with a smaller vocabulary, eight micro-batches a step.
TEST(DroppingMemoryTest, ABertWhoseDenseGradientsBreakItsMemoryLimitTrainsWithDropping) {
  InstallMemoryCounter();
  const auto model = *MakeModel({.config_json = R"({"model_type": "bert", "hidden_size": 512,
      "intermediate_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 4000,
      "max_position_embeddings": 64})"});
  const plan::MaskPlan plan = *plan::MakeMaskPlan(model->shape(), {.workers = 1});
  const auto data = MakeSyntheticDataset(model->input(), 64, 16, 1);
  TrainerOptions options;
  options.batch = 1;
  options.accumulation = 8;
  options.schedule.total_steps = 2;
  const auto train = [&](int64_t limit) {
    ResetPeakTensorBytes();
    const auto world = MakeLoopbackWorld();
    ReportSink reports;
    TrainerSignals signals;
    const TrainerContext context{model.get(), &plan, world.get(), data.get(), nullptr, &reports, &signals};
    LimitTensorBytes(limit);
    auto trainer = Trainer::Create(options, context);
    absl::Status status = trainer.status();
    if (status.ok()) status = (*trainer)->Run().status();
    LimitTensorBytes(0);
    return status;
  };
  ASSERT_OK(train(0));
  const int64_t dense = PeakTensorBytes();
  const plan::StepShape step{.sequence_length = 16};
  const int64_t limit = dense - plan::PredictMemory(model->shape(), plan, 0, step).gradients / 2;
  EXPECT_EQ(train(limit).code(), absl::StatusCode::kResourceExhausted);
  options.dropping = Dropping(model->shape(), "rotation", ResidualKeep::kNone);
  EXPECT_EQ(train(limit), absl::OkStatus());
  options.accumulation = 16;  // a larger effective batch costs nothing
  EXPECT_EQ(train(limit), absl::OkStatus());
}

}  // namespace
}  // namespace tessera::worker

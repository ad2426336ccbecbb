// Training with gradient dropping, all rules and regimes, on ranks that are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "scheduler/plan/dropping_cost.h"
#include "scheduler/plan/layer_budgets.h"
#include "tests/status.h"
#include "tests/worker/train/gradient_memory.h"
#include "tests/worker/train/training_rig.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

std::vector<int64_t> Budgets(const plan::ModelShape& shape, double density) {
  std::vector<plan::LayerDemand> layers;
  for (const auto& parameter : shape.parameters) {
    layers.push_back({.elements = parameter.elements(), .floor = parameter.dims.size() < 2 ? 1.0 : 0.0});
  }
  return *plan::LayerBudgets(density, layers);
}

DroppingOptions Dropping(const TrainingRig& rig, const char* rule, double density) {
  DroppingOptions options;
  options.rule = *FindDroppingRule(rule);
  options.importance_share = options.rule->needs().default_share;
  if (options.rule->needs().residual) options.residual = ResidualKeep::kFp32;
  options.kept = Budgets(rig.model.shape(), density);
  return options;
}

void ExpectHoldersAgree(const std::vector<RankOutcome>& outcomes) {
  for (const RankOutcome& outcome : outcomes) {
    ASSERT_OK(outcome.result);
    EXPECT_TRUE(SameBits(outcomes[0], outcome));
    EXPECT_TRUE(SameBits(outcome, outcomes[0]));
  }
}

// Everything kept is data parallelism to the bit, whatever the way through ring and optimizer.
TEST(DroppingTrainingTest, AtDensityOneTrainingIsDense) {
  for (const plan::Granularity granularity : {plan::Granularity::kBlock, plan::Granularity::kNeuron}) {
    TrainingRig rig;
    rig.ranks = 2;
    rig.coverage = 0.5;
    rig.granularity = granularity;
    const std::vector<RankOutcome> dense = rig.Train();
    rig.options.dropping = Dropping(rig, "rotation", 1);
    const std::vector<RankOutcome> dropped = rig.Train();
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_OK(dropped[rank].result) << dropped[rank].result.status();
      EXPECT_TRUE(SameBits(dense[rank], dropped[rank]));
      EXPECT_EQ(dense[rank].result->loss, dropped[rank].result->loss);
    }
  }
}

class EveryRuleTrainsTest : public testing::TestWithParam<const DroppingRule*> {};

TEST_P(EveryRuleTrainsTest, HoldersStayEqualUnderMasksAccumulationAndAWarmUp) {
  for (const plan::Granularity granularity : {plan::Granularity::kBlock, plan::Granularity::kNeuron}) {
    TrainingRig rig;
    rig.ranks = 3;
    rig.coverage = 2.0 / 3;
    rig.granularity = granularity;
    rig.options.accumulation = 2;
    rig.options.schedule.total_steps = 12;
    rig.options.dropping = Dropping(rig, GetParam()->name().data(), 0.4);
    rig.options.dropping->refresh = 2;
    rig.options.dropping_first_step = 3;
    ExpectHoldersAgree(rig.Train());
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryRuleTrainsTest, testing::ValuesIn(DroppingRules()),
                         [](const auto& info) { return std::string(info.param->name()); });

TEST(DroppingTrainingTest, ItLearnsNearlyAsDenseTrainingDoes) {
  TrainingRig rig;
  rig.ranks = 2;
  rig.options.schedule.total_steps = 60;
  const double dense = *rig.Train()[0].result->validation_loss;
  for (const char* rule : {"rotation", "cyclic_top_k", "magnitude"}) {
    rig.options.dropping = Dropping(rig, rule, 0.3);
    const std::vector<RankOutcome> outcomes = rig.Train();
    ASSERT_OK(outcomes[0].result) << outcomes[0].result.status();
    // Wrong elements or a wrong divisor do not learn at all: the loss starts near log(19), 2.94.
    EXPECT_LT(*outcomes[0].result->validation_loss, dense + 0.25 * (2.94 - dense))
        << rule << " dense " << dense;
  }
}

TEST(DroppingTrainingTest, AccumulationSendsOnceAndEqualsOneLargerBatch) {
  TrainingRig rig;
  rig.ranks = 2;
  rig.options.dropping = Dropping(rig, "rotation", 0.3);
  rig.options.batch = 4;
  const std::vector<RankOutcome> whole = rig.Train();
  rig.options.batch = 2;
  rig.options.accumulation = 2;
  const std::vector<RankOutcome> parts = rig.Train();
  EXPECT_EQ(whole[0].reports.steps.back().traffic_bytes, parts[0].reports.steps.back().traffic_bytes);
  // The samples of a step are dealt otherwise among ranks and micro-steps; sums in fp32 differ in the last
  // bits.
  EXPECT_LT(LargestDifference(whole[0].weights, parts[0].weights), 1e-4);
}

TEST(DroppingTrainingTest, AFrozenElementMovesOnlyWhenItIsSent) {
  TrainingRig rig;
  rig.options.schedule.total_steps = 1;
  rig.options.schedule.warmup_steps = 0;
  rig.options.dropping = Dropping(rig, "rotation", 0.3);
  rig.options.dropping->freeze_unsent = true;
  const std::vector<RankOutcome> outcomes = rig.Train();
  ASSERT_OK(outcomes[0].result) << outcomes[0].result.status();
  at::Tensor initial = at::empty({ToyModel::kHidden, ToyModel::kHidden});
  rig.model.Initialize(2, rig.options.seed, initial);
  const int64_t moved = at::count_nonzero(outcomes[0].weights[2] - initial).item<int64_t>();
  EXPECT_EQ(moved, rig.options.dropping->kept[2]);
}

TEST(DroppingTrainingTest, TrafficIsThePlans) {
  for (const char* rule : {"rotation", "cyclic_top_k", "sketch_top_k", "magnitude"}) {
    TrainingRig rig;
    rig.ranks = 3;
    rig.coverage = 2.0 / 3;
    rig.options.checksum_interval = 0;
    const int64_t dense = rig.Train()[0].reports.steps.back().traffic_bytes;
    const plan::MaskPlan plan = rig.Plan();
    const int64_t small =
        dense -
        plan::PredictTraffic(plan, 0, plan::StepShape());  // token counts, the record that ends a step
    rig.options.dropping = Dropping(rig, rule, 0.3);
    plan::Dropping costs{.kept = rig.options.dropping->kept};
    if (std::string(rule) == "cyclic_top_k") costs.picks = plan::PickTraffic::kBitmap;
    if (std::string(rule) == "sketch_top_k") costs.picks = plan::PickTraffic::kSketch;
    if (std::string(rule) == "magnitude") costs.picks = plan::PickTraffic::kPairs;
    const int64_t measured = rig.Train()[0].reports.steps.back().traffic_bytes - small;
    const auto planned = static_cast<double>(
        plan::PredictDroppedTraffic(rig.model.shape(), plan, 0, plan::StepShape(), costs));
    EXPECT_NEAR(static_cast<double>(measured), planned, 0.02 * planned) << rule;
  }
}

// Of one process. Between steps live tensors are the states, so that dense and dropped runs differ by the
// residual alone; kept elements take what the plan says while they are there.
TEST(DroppingTrainingTest, GradientMemoryIsThePlans) {
  InstallMemoryCounter();
  const auto live = [](const TrainingRig& rig) {
    const std::vector<RankOutcome> outcomes = rig.Train();
    EXPECT_OK(outcomes[0].result) << outcomes[0].result.status();
    return outcomes[0].reports.steps.back().memory_used_bytes;
  };
  TrainingRig rig;
  rig.options.schedule.total_steps = 3;
  const int64_t dense = live(rig);
  const plan::MaskPlan plan = rig.Plan();
  const plan::StepShape step{.batch = 2, .sequence_length = ToyDataset::kLength};
  const int64_t gradients = plan::PredictMemory(rig.model.shape(), plan, 0, step).gradients;
  EXPECT_EQ(GradientMemory(rig), gradients);
  for (const ResidualKeep residual : {ResidualKeep::kNone, ResidualKeep::kBf16, ResidualKeep::kFp32}) {
    rig.options.dropping = Dropping(rig, "rotation", 0.3);
    rig.options.dropping->residual = residual;
    plan::Dropping costs{.kept = rig.options.dropping->kept};
    costs.residual_bytes_per_element = residual == ResidualKeep::kNone   ? 0
                                       : residual == ResidualKeep::kBf16 ? 2
                                                                         : 4;
    const plan::DroppedMemory planned = plan::PredictDroppedMemory(rig.model.shape(), plan, 0, step, costs);
    EXPECT_EQ(live(rig) - dense, planned.residual);
    EXPECT_EQ(GradientMemory(rig), planned.memory.gradients);
  }
  EXPECT_LT(static_cast<double>(plan::PredictDroppedMemory(rig.model.shape(), plan, 0, step,
                                                           {.kept = rig.options.dropping->kept})
                                    .memory.gradients),
            0.35 * static_cast<double>(gradients));
}

// Within steps too, whatever the number of micro-batches: beside the ring there is only what a hook has in
// hand.
TEST(DroppingTrainingTest, GradientsNeverExceedTheRingAndTheLayersInFlight) {
  InstallMemoryCounter();
  TrainingRig rig;
  rig.model = ToyModel(24);
  rig.options.accumulation = 4;
  rig.options.evaluation_tokens = 1;
  rig.options.schedule.total_steps = 4;
  const auto peak = [](TrainingRig& of) {
    of.on_step = [](int, const StepReport& report, TrainerSignals&) {
      if (report.step == 2) ResetPeakTensorBytes();
    };
    const std::vector<RankOutcome> outcomes = of.Train();
    EXPECT_OK(outcomes[0].result) << outcomes[0].result.status();
    return outcomes[0].reports.steps.back().memory_peak_bytes;
  };
  int64_t gradients = 0, largest = 0;
  for (const auto& parameter : rig.model.shape().parameters) {
    gradients += 4 * parameter.elements();
    largest = std::max(largest, 4 * parameter.elements());
  }
  const int64_t dense = peak(rig);
  rig.options.dropping = Dropping(rig, "rotation", 0.3);
  int64_t ring = 0;
  for (const int64_t kept : rig.options.dropping->kept) ring += 4 * kept;
  EXPECT_LE(peak(rig), dense - gradients + ring + largest);
  EXPECT_GT(gradients - ring, 10 * largest) << "says nothing";
}

TEST(DroppingTrainingTest, AResumedRunGoesOnAsTheUninterruptedOne) {
  for (const char* rule : {"rotation", "second_moment"}) {
    TrainingRig rig;
    rig.ranks = 2;
    rig.options.schedule.total_steps = 10;
    rig.options.dropping = Dropping(rig, rule, 0.3);
    rig.options.dropping->refresh = 4;
    rig.options.checkpoint_directory = testing::TempDir() + "/dropping-resume-" + rule;
    rig.options.checkpoint_interval = 6;
    rig.options.retention.keep = 10;
    const std::vector<RankOutcome> whole = rig.Train();
    ASSERT_OK(whole[0].result) << whole[0].result.status();
    ASSERT_GE(whole[0].reports.checkpoints.size(), 2u);
    rig.options.resume_from = whole[0].reports.checkpoints[0];
    rig.options.checkpoint_directory = testing::TempDir() + "/dropping-resumed-" + rule;
    const std::vector<RankOutcome> resumed = rig.Train();
    ASSERT_OK(resumed[0].result) << resumed[0].result.status();
    EXPECT_TRUE(SameBits(whole[0], resumed[0])) << rule;
  }
}

// Ranks learn of new budgets at different steps. If two ever summed with different ones, sums or holders
// would differ: the check of selections fails the run.
TEST(DroppingTrainingTest, NewBudgetsAreAdoptedByAllRanksAtTheSameStep) {
  TrainingRig rig;
  rig.ranks = 3;
  rig.options.schedule.total_steps = 12;
  rig.options.dropping = Dropping(rig, "cyclic_top_k", 0.3);
  const std::vector<int64_t> more = Budgets(rig.model.shape(), 0.6), less = Budgets(rig.model.shape(), 0.2);
  rig.on_step = [&](int rank, const StepReport& report, TrainerSignals& signals) {
    if (report.step == 2 + rank) {
      signals.budgets.Put(2, more);
      signals.plan_generation = 2;
    }
    if (report.step == 8 - rank) {
      signals.budgets.Put(3, less);
      signals.plan_generation = 3;
    }
  };
  const std::vector<RankOutcome> outcomes = rig.Train();
  ExpectHoldersAgree(outcomes);
  for (const RankOutcome& outcome : outcomes) {
    for (const StepReport& report : outcome.reports.steps) {
      // The last rank holds generation 2 after step 4 and says so with step 5, after which it is in force;
      // some hold generation 3 after step 6, all after step 8.
      const int64_t generation = report.step < 5 ? 1 : report.step < 9 ? 2 : 3;
      EXPECT_EQ(report.plan_generation, generation) << "step " << report.step;
      EXPECT_NEAR(report.gradient_kept_ratio,
                  generation == 1   ? 0.3
                  : generation == 2 ? 0.6
                                    : 0.2,
                  0.001)
          << "step " << report.step;
    }
  }
}

TEST(DroppingTrainingTest, ARankThatNeverLearnsOfNewBudgetsHoldsThemBackAndNothingElse) {
  TrainingRig rig;
  rig.ranks = 2;
  rig.options.dropping = Dropping(rig, "rotation", 0.3);
  rig.on_step = [&](int rank, const StepReport& report, TrainerSignals& signals) {
    if (rank != 0 || report.step != 2) return;
    signals.budgets.Put(2, Budgets(rig.model.shape(), 0.6));
    signals.plan_generation = 2;
  };
  const std::vector<RankOutcome> outcomes = rig.Train();
  ExpectHoldersAgree(outcomes);
  EXPECT_EQ(outcomes[0].result->step, rig.options.schedule.total_steps);
  EXPECT_EQ(outcomes[0].reports.steps.back().plan_generation, 1);
}

TEST(DroppingTrainingTest, WhatCannotBeIsRefusedWithTheRemedy) {
  TrainingRig rig;
  rig.options.dropping = Dropping(rig, "rotation", 0.3);
  rig.options.dropping->rule = *FindDroppingRule("cyclic_top_k");
  EXPECT_THAT(rig.Train()[0].result.status().message(), HasSubstr("use bf16 or fp32"));
  rig.options.dropping = Dropping(rig, "magnitude", 0.3);
  rig.options.dropping->worker_shares = {1};
  EXPECT_THAT(rig.Train()[0].result.status().message(), HasSubstr("with spec.dropping.workerLimits"));
  rig.options.dropping->worker_shares.clear();
  rig.options.store.sharded = true;
  EXPECT_THAT(rig.Train()[0].result.status().message(), HasSubstr("with spec.sharding fsdp"));
  rig.options.store.sharded = false;
  rig.options.dropping = Dropping(rig, "rotation", 0.3);
  rig.options.dropping->kept[2] = 0;
  EXPECT_THAT(rig.Train()[0].result.status().message(), HasSubstr("layers.0.up is 0 of 256"));
}

}  // namespace
}  // namespace tessera::worker

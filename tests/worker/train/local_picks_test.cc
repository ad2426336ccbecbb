// The rule magnitude: every holder sends its own largest gradients, with their indices.
#include <gtest/gtest.h>

#include <algorithm>

#include "scheduler/plan/dropping_cost.h"
#include "scheduler/plan/layer_budgets.h"
#include "tests/status.h"
#include "tests/worker/train/training_rig.h"
#include "worker/checkpoint/residual_state.h"
#include "worker/dropping/dropping_reducer.h"
#include "worker/dropping/pick_exchange.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

DroppingOptions Magnitude(const plan::ModelShape& shape, ResidualKeep residual, double density = 0.3) {
  std::vector<plan::LayerDemand> layers;
  for (const auto& parameter : shape.parameters) {
    layers.push_back({.elements = parameter.elements(), .floor = parameter.dims.size() < 2 ? 1.0 : 0.0});
  }
  DroppingOptions options;
  options.rule = *FindDroppingRule("magnitude");
  options.importance_share = options.rule->needs().default_share;
  options.residual = residual;
  options.kept = *plan::LayerBudgets(density, layers);
  return options;
}

TrainingRig OneStepOfSgd(int ranks) {
  TrainingRig rig;
  rig.ranks = ranks;
  rig.data = ToyDataset(20000, 3);  // ranks contribute unequal numbers of targets
  rig.options.accumulation = 2;
  rig.options.optimizer.name = "sgd";
  rig.options.optimizer.momentum = 0;
  rig.options.optimizer.weight_decay = 0;
  rig.options.clip_norm = 0;
  rig.options.schedule.total_steps = 1;
  rig.options.schedule.warmup_steps = 0;
  return rig;
}

// Dense weights differ from these by a learning rate times what has not been sent.
TEST(LocalPicksTest, WhatIsSentAndWhatIsLeftAreTogetherTheDenseGradient) {
  TrainingRig rig = OneStepOfSgd(3);
  const std::vector<RankOutcome> dense = rig.Train();
  rig.options.dropping = Magnitude(rig.model.shape(), ResidualKeep::kFp32);
  rig.options.checkpoint_directory = testing::TempDir() + "/local-picks";
  const std::vector<RankOutcome> sent = rig.Train();
  ASSERT_TRUE(dense[0].result.ok() && sent[0].result.ok()) << sent[0].result.status();
  std::vector<at::Tensor> left;
  for (const auto& parameter : rig.model.shape().parameters) left.push_back(at::zeros(parameter.dims));
  const plan::MaskPlan plan = rig.Plan();
  for (int rank = 0; rank < rig.ranks; ++rank) {
    const auto store = *UnitStore::Create(rig.model, plan, rank, rig.options.store);
    const auto residual = LoadResidual(sent[0].result->checkpoint, *store, at::kFloat);
    ASSERT_OK(residual);
    for (const HeldPiece& piece : ResidualPieces(*store, *residual)) {
      left[piece.piece.parameter]
          .narrow(piece.piece.dim, piece.piece.begin, piece.piece.length)
          .add_(piece.states[0].second);
    }
  }
  const StepReport& step = sent[0].reports.steps.back();
  const double scale = static_cast<double>(step.step_tokens) / step.learning_rate;
  double size = 0;
  for (size_t p = 0; p < left.size(); ++p) {
    size += left[p].abs().sum().item<double>();
    // Weights of up to 1 are rounded to 6e-8, and `scale` is some ten thousands.
    EXPECT_TRUE(at::allclose((sent[0].weights[p] - dense[0].weights[p]) * scale, left[p], 1e-3, 1e-2))
        << rig.model.shape().parameters[p].name;
  }
  EXPECT_GT(size, 1);
}

// With unsent elements frozen, one step moves what any rank has picked: more than one picks, at most what all
// of them pick together.
TEST(LocalPicksTest, OneStepMovesWhatAnyRankHasPicked) {
  TrainingRig rig = OneStepOfSgd(3);
  rig.options.dropping = Magnitude(rig.model.shape(), ResidualKeep::kNone, 0.2);
  rig.options.dropping->freeze_unsent = true;
  for (const WireType wire : {WireType::kFloat, WireType::kBFloat16}) {
    rig.options.reducer.wire = wire;
    const std::vector<RankOutcome> outcomes = rig.Train();
    for (const RankOutcome& outcome : outcomes) {
      ASSERT_OK(outcome.result);
      EXPECT_TRUE(SameBits(outcomes[0], outcome));
    }
    at::Tensor initial = at::empty({ToyModel::kHidden, ToyModel::kHidden});
    rig.model.Initialize(2, rig.options.seed, initial);
    const int64_t moved = at::count_nonzero(outcomes[0].weights[2] - initial).item<int64_t>();
    const int64_t kept = rig.options.dropping->kept[2];
    EXPECT_GT(moved, kept + kept / 10);
    EXPECT_LE(moved, 3 * kept);
  }
}

// Ranks are threads of this process, so that what is counted is the sum over them.
TEST(LocalPicksTest, RingAndGatheringTakeTheMemoryOfThePlan) {
  InstallMemoryCounter();
  constexpr int kRanks = 3;
  TrainingRig rig;
  rig.ranks = kRanks;
  const plan::MaskPlan plan = rig.Plan();
  const plan::ModelShape& shape = rig.model.shape();
  const DroppingOptions options = Magnitude(shape, ResidualKeep::kBf16);
  const plan::Dropping costs{
      .kept = options.kept, .residual_bytes_per_element = 2, .picks = plan::PickTraffic::kPairs};
  const auto phase = [](const plan::MemoryPrediction& memory, const char* name) {
    return std::find_if(memory.phases.begin(), memory.phases.end(),
                        [&](const plan::PhasePeak& of) { return of.name == name; })
        ->bytes;
  };
  int64_t planned = 0, exchange = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const plan::DroppedMemory dropped = plan::PredictDroppedMemory(shape, plan, rank, {}, costs);
    const plan::MemoryPrediction dense = plan::PredictMemory(shape, plan, rank, {});
    planned += dropped.memory.gradients + dropped.residual;
    exchange += phase(dropped.memory, "reduce") - dropped.memory.gradients - dropped.residual -
                (phase(dense, "reduce") - dense.gradients);
  }
  int64_t before = 0, made = 0, gathering = 0;
  RunRanks(kRanks, [&](int rank, World& world) {
    const auto store = *UnitStore::Create(rig.model, plan, rank);
    const auto count = [&](int64_t* bytes) {
      ASSERT_OK(world.all().Barrier());
      if (rank == 0) *bytes = LiveTensorBytes();
      ASSERT_OK(world.all().Barrier());
    };
    count(&before);
    auto reducer = MakeDroppingReducer(store.get(), &world, {}, options, 0);
    ASSERT_OK(reducer);
    std::vector<at::Tensor> rings;  // as the reducer makes them in a step
    for (int position = 0; position < static_cast<int>(store->held().size()); ++position) {
      rings.push_back(at::zeros({reducer->pieces->section_elements(position)}));
    }
    count(&made);
    ASSERT_OK(reducer->pieces->Begin(true));
    // The group that has most.
    std::vector<std::vector<PickExchange::Part>> groups(store->held().size());
    std::vector<int64_t> kept(groups.size(), 0);
    for (KeptPiece& piece : reducer->pieces->pieces()) {
      if (!piece.alone) continue;
      float* const ring = rings[piece.position].data_ptr<float>() + piece.ring;
      reducer->pieces->Cut(piece, nullptr, ring);
      groups[piece.position].push_back({&piece, ring});
      kept[piece.position] += piece.kept;
    }
    const auto most = std::max_element(kept.begin(), kept.end()) - kept.begin();
    auto gathered = PickExchange::Start(reducer->pieces, &world.all(), WireType::kFloat, groups[most]);
    count(&gathering);
    EXPECT_OK(gathered->Finish());
  });
  EXPECT_EQ(made - before, planned);
  EXPECT_EQ(gathering - made, exchange);
  EXPECT_GT(exchange, 0);
}

}  // namespace
}  // namespace tessera::worker

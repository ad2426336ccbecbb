#include "worker/parallel/gradient_reducer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/status.h"
#include "tests/worker/parallel/rank_threads.h"
#include "tests/worker/parallel/toy_model.h"
#include "worker/parallel/runner.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

plan::MaskPlan MakePlan(const ToyModel& model, int workers, double coverage) {
  plan::MaskRequest request;
  request.workers = workers;
  request.coverage = coverage;
  request.scheme = coverage == 1 ? plan::Scheme::kFull : plan::Scheme::kCyclic;
  auto made = plan::MakeMaskPlan(model.shape(), request);
  EXPECT_OK(made);
  return *std::move(made);
}

// Gradients of the summed loss by a plain backward over the units `rank` holds.
std::vector<at::Tensor> PlainGradients(const Model& model, const plan::MaskPlan& plan, int rank,
                                       const Batch& batch) {
  auto store = UnitStore::Create(model, plan, rank);
  (*store)->Initialize(3);
  TrainingRunner runner(**store, nullptr, nullptr, {});
  model.Loss((*store)->weights(), batch, runner).backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& weight : (*store)->weights())
    gradients.push_back(weight.defined() ? weight.grad() : at::Tensor());
  return gradients;
}

at::Tensor Reduced(const UnitStore& store, int parameter) {
  for (const GroupState& state : store.held()) {
    for (const GroupSlot& slot : store.groups()[state.group].slots) {
      if (slot.slice.parameter == parameter) return SlotView(store.model().shape(), slot, state.gradients);
    }
  }
  return {};
}

class ReducerTest : public testing::TestWithParam<int64_t> {};  // bucket bytes

TEST_P(ReducerTest, EqualsANaiveSumOverTheHoldersBitForBit) {
  for (const double coverage : {1.0, 0.5}) {
    const ToyModel model(6);
    const ToyDataset data(4000, 2);
    const int workers = coverage == 1 ? 2 : 4;
    const plan::MaskPlan plan = MakePlan(model, workers, coverage);
    std::vector<std::vector<at::Tensor>> plain;
    for (int rank = 0; rank < workers; ++rank) {
      plain.push_back(PlainGradients(model, plan, rank, data.Of({rank, rank + 10})));
    }
    RunRanks(workers, [&](int rank, World& world) {
      auto store = UnitStore::Create(model, plan, rank);
      (*store)->Initialize(3);
      auto reducer = GradientReducer::Create(store->get(), &world, {.bucket_bytes = GetParam()});
      ASSERT_OK(reducer);
      const Batch batch = data.Of({rank, rank + 10});
      (*reducer)->BeginMicroStep(true, true, batch.target_count);
      TrainingRunner runner(**store, nullptr, reducer->get(), {});
      model.Loss((*store)->weights(), batch, runner).backward();
      ASSERT_OK((*reducer)->EndMicroStep());
      for (size_t p = 0; p < model.shape().parameters.size(); ++p) {
        const int unit = plan.slices()[p].unit;
        if (!plan.Holds(rank, unit)) continue;
        at::Tensor sum = at::zeros(model.shape().parameters[p].dims);
        for (int holder : plan.Holders(unit)) sum += plain[holder][p];
        const at::Tensor got = Reduced(**store, static_cast<int>(p));
        // A sum of two does not depend on order; of four it may by a rounding or two.
        if (plan.Holders(unit).size() <= 2) {
          EXPECT_TRUE(at::equal(got, sum)) << model.shape().parameters[p].name;
        } else {
          EXPECT_TRUE(at::allclose(got, sum, 1e-5, 1e-5)) << model.shape().parameters[p].name;
        }
        EXPECT_FALSE((*store)->weights()[p].grad().defined()) << "the fresh gradient was not freed";
      }
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Buckets, ReducerTest, testing::Values(1, 1500, 1 << 20),
                         [](const auto& info) { return absl::StrCat(info.param, "_bytes"); });

TEST(ReducerDivisorTest, CountsTheTokensOfTheUnitsHoldersOnly) {
  const ToyModel model(6);
  const plan::MaskPlan plan = MakePlan(model, 4, 0.5);
  RunRanks(4, [&](int rank, World& world) {
    auto store = UnitStore::Create(model, plan, rank);
    auto reducer = GradientReducer::Create(store->get(), &world, {});
    ASSERT_OK(reducer);
    (*reducer)->BeginMicroStep(true, true, int64_t{10} * (rank + 1));
    ASSERT_OK((*reducer)->EndMicroStep());
    for (size_t i = 0; i < (*store)->held().size(); ++i) {
      double expected = 0;
      for (int holder : (*store)->groups()[(*store)->held()[i].group].holders) expected += 10 * (holder + 1);
      EXPECT_EQ((*reducer)->divisor(static_cast<int>(i)), expected);
    }
  });
}

TEST(ReducerUnusedTest, AParameterWithoutGradientCountsAsZeroAndHangsNothing) {
  const ToyModel model(2);
  const plan::MaskPlan plan = MakePlan(model, 2, 1);
  RunRanks(2, [&](int rank, World& world) {
    auto store = UnitStore::Create(model, plan, rank);
    (*store)->Initialize(1);
    auto reducer = GradientReducer::Create(store->get(), &world, {.bucket_bytes = 1});
    ASSERT_OK(reducer);
    const auto& weights = (*store)->weights();
    for (int step = 0; step < 2; ++step) {  // the second must not see the first's values
      (*reducer)->BeginMicroStep(true, true, 1);
      if (step == 0) weights[2].sum().backward();
      if (rank == 0) weights[0].sum().backward();
      ASSERT_OK((*reducer)->EndMicroStep());
      EXPECT_EQ(Reduced(**store, 2).sum().item<float>(), step == 0 ? 2.0f * weights[2].numel() : 0.0f);
      EXPECT_EQ(Reduced(**store, 0).sum().item<float>(), static_cast<float>(weights[0].numel()));
    }
  });
}

TEST(ReducerAccumulationTest, MicroStepsAddUpToOneLargeBatch) {
  const ToyModel model(3, /*tied=*/true);
  const ToyDataset data(4000, 3);
  const plan::MaskPlan plan = MakePlan(model, 1, 1);
  const std::vector<at::Tensor> large = PlainGradients(model, plan, 0, data.Of({0, 1, 2, 3}));
  auto world = MakeLoopbackWorld();
  auto store = UnitStore::Create(model, plan, 0);
  (*store)->Initialize(3);
  auto reducer = GradientReducer::Create(store->get(), world.get(), {});
  ASSERT_OK(reducer);
  TrainingRunner runner(**store, nullptr, reducer->get(), {});
  for (int64_t micro = 0; micro < 2; ++micro) {
    const Batch batch = data.Of({2 * micro, 2 * micro + 1});
    (*reducer)->BeginMicroStep(micro == 0, micro == 1, batch.target_count);
    model.Loss((*store)->weights(), batch, runner).backward();
  }
  ASSERT_OK((*reducer)->EndMicroStep());
  for (size_t p = 0; p < large.size(); ++p) {
    // Sums in another order: a few roundings of fp32.
    EXPECT_TRUE(at::allclose(Reduced(**store, static_cast<int>(p)), large[p], 1e-5, 1e-6));
  }
  EXPECT_EQ((*reducer)->divisor(0), data.Of({0, 1, 2, 3}).target_count);
}

TEST(ReducerRepeatTest, AStepThatIsDoneAgainHasNothingOfTheFirstTime) {
  InstallMemoryCounter();
  const ToyModel model(3);
  const ToyDataset data(4000, 3);
  for (const bool sharded : {false, true}) {
    const plan::MaskPlan plan = MakePlan(model, 2, 1);
    RunRanks(2, [&](int rank, World& world) {
      auto store = UnitStore::Create(model, plan, rank, {.sharded = sharded});
      (*store)->Initialize(3);
      auto fetcher = WeightFetcher::Create(store->get(), &world);
      auto reducer = GradientReducer::Create(store->get(), &world, {});
      ASSERT_OK(reducer);
      const Batch batch = data.Of({rank});
      std::vector<at::Tensor> first;
      for (int time = 0; time < 2; ++time) {
        (*reducer)->BeginMicroStep(true, true, batch.target_count);
        for (const GroupState& state : (*store)->held()) EXPECT_FALSE(state.gradients.defined());
        TrainingRunner runner(**store, sharded ? fetcher->get() : nullptr, reducer->get(), {});
        ASSERT_OK(runner.Begin());
        model.Loss(runner.weights(), batch, runner).backward();
        runner.End();
        ASSERT_OK((*reducer)->EndMicroStep());
        for (const GroupState& state : (*store)->held()) {
          if (time == 0) first.push_back(state.gradients.clone());
        }
        for (size_t i = 0; i < first.size(); ++i)
          EXPECT_TRUE(at::equal((*store)->held()[i].gradients, first[i]));
      }
    });
  }
}

TEST(UnitStoreTest, AbsentUnitsUseNoMemory) {
  InstallMemoryCounter();
  const ToyModel model(8);
  const plan::MaskPlan plan = MakePlan(model, 4, 0.5);
  for (int rank = 0; rank < 4; ++rank) {
    const int64_t before = LiveTensorBytes();
    auto store = UnitStore::Create(model, plan, rank);
    ASSERT_OK(store);
    // Weight and two moments in fp32; gradients are there from a backward pass to the update alone.
    const int64_t states = 3 * 4 * plan.Elements(rank);
    const int64_t used = LiveTensorBytes() - before;
    EXPECT_EQ(used, states);
    for (size_t p = 0; p < model.shape().parameters.size(); ++p) {
      EXPECT_EQ((*store)->weights()[p].defined(), plan.Holds(rank, plan.slices()[p].unit));
    }
  }
}

TEST(StreamedRunnerTest, EqualsTheAssembledModel) {
  const ToyModel model(6);
  const ToyDataset data(4000);
  const plan::MaskPlan plan = MakePlan(model, 4, 0.5);
  const plan::MaskPlan whole = MakePlan(model, 1, 1);
  for (const ResidualScale residual : {ResidualScale::kNone, ResidualScale::kEvaluation}) {
    const at::NoGradGuard no_grad;
    auto assembled = UnitStore::Create(model, whole, 0);
    (*assembled)->Initialize(5);
    class ScaledRunner final : public BlockRunner {
     public:
      ScaledRunner(const plan::MaskPlan& p, ResidualScale r) : plan(p), residual(r) {}
      at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override {
        return body(x, residual == ResidualScale::kEvaluation ? plan.BlockHolderShare(block) : 1);
      }
      const plan::MaskPlan& plan;
      ResidualScale residual;
    } scaled(plan, residual);
    const Batch batch = data.Of({1, 2, 3});
    const at::Tensor expected = model.Loss((*assembled)->weights(), batch, scaled);
    RunRanks(4, [&](int rank, World& world) {
      const at::NoGradGuard off;
      auto store = UnitStore::Create(model, plan, rank);
      (*store)->Initialize(5);
      auto fetcher = WeightFetcher::Create(store->get(), &world);
      StreamedRunner runner(**store, fetcher->get(), residual);
      EXPECT_OK(runner.Begin());
      EXPECT_TRUE(at::equal(model.Loss(runner.weights(), batch, runner), expected));
      EXPECT_OK(runner.status());
      for (size_t p = 0; p < runner.weights().size(); ++p) {
        EXPECT_EQ(runner.weights()[p].defined(), (*store)->weights()[p].defined())
            << "a streamed unit was kept";
      }
    });
  }
}

}  // namespace
}  // namespace tessera::worker

// Training on devices, against the same on the host.
#include <ATen/ATen.h>

#include <thread>

#include "scheduler/plan/layer_budgets.h"
#include "tests/status.h"
#include "tests/worker/cuda/gpu_fixture.h"
#include "tests/worker/parallel/recording_world.h"
#include "tests/worker/train/training_rig.h"
#include "worker/comm/staged_world.h"

namespace tessera::worker {
namespace {

// Sums in another order: six steps of at most the learning rate of 0.01 each.
constexpr double kTolerance = 2e-3;
// In bf16 a gradient is off by up to 1/256 where its sum is rounded the other way: an element whose gradient
// is nearly nothing may go a step of the learning rate the other way each time.
constexpr double kBf16Tolerance = 0.06;

struct Case {
  const char* name;
  plan::Granularity granularity;
  bool backward, streamed, sharded;
  const char* rule;  // of dropping; null: dense
  bool bf16 = false;
};

const Case kCases[] = {
    {"blocks", plan::Granularity::kBlock, false, false, false, nullptr},
    {"neurons", plan::Granularity::kNeuron, false, false, false, nullptr},
    {"backward", plan::Granularity::kBlock, true, false, false, nullptr},
    {"streamed", plan::Granularity::kBlock, true, true, false, nullptr},
    {"fsdp", plan::Granularity::kBlock, false, false, true, nullptr},
    {"rotation", plan::Granularity::kBlock, false, false, false, "rotation"},
    {"second_moment", plan::Granularity::kBlock, false, false, false, "second_moment"},
    {"cyclic_top_k", plan::Granularity::kBlock, false, false, false, "cyclic_top_k"},
    {"fsdp_dropping", plan::Granularity::kBlock, false, false, true, "rotation"},
    {"bf16", plan::Granularity::kBlock, false, false, false, nullptr, true},
    {"fsdp_bf16", plan::Granularity::kBlock, false, false, true, nullptr, true},
};

TrainingRig RigOf(const Case& of, int ranks) {
  TrainingRig rig;
  rig.ranks = ranks;
  rig.coverage = ranks > 1 ? 0.5 : 1;
  rig.granularity = of.granularity;
  rig.options.store.backward_masking = of.backward;
  rig.options.store.streamed = of.streamed;
  rig.options.store.sharded = of.sharded;
  rig.options.accumulation = 2;
  rig.options.bf16 = of.bf16;
  if (of.rule != nullptr) {
    DroppingOptions dropping;
    dropping.rule = *FindDroppingRule(of.rule);
    dropping.importance_share = dropping.rule->needs().default_share;
    if (dropping.rule->needs().residual) dropping.residual = ResidualKeep::kBf16;
    std::vector<plan::LayerDemand> layers;
    for (const auto& p : rig.model.shape().parameters) layers.push_back({.elements = p.elements()});
    dropping.kept = *plan::LayerBudgets(0.3, layers);
    rig.options.dropping = dropping;
  }
  return rig;
}

class TrainingGpuTest : public GpuTest, public testing::WithParamInterface<Case> {
 protected:
  void ExpectAsOnTheHost(TrainingRig rig) {
    const std::vector<RankOutcome> host = rig.Train();
    const double tolerance = rig.options.bf16 ? kBf16Tolerance : kTolerance;
    rig.gpu = gpu_;
    const std::vector<RankOutcome> device = rig.Train();
    for (int rank = 0; rank < rig.ranks; ++rank) {
      ASSERT_OK(host[rank].result) << host[rank].result.status();
      ASSERT_OK(device[rank].result) << device[rank].result.status();
      EXPECT_NEAR(host[rank].result->loss, device[rank].result->loss, tolerance);
      EXPECT_NEAR(*host[rank].result->validation_loss, *device[rank].result->validation_loss, tolerance);
      EXPECT_LT(LargestDifference(host[rank].weights, device[rank].weights), tolerance);
    }
  }
};

TEST_P(TrainingGpuTest, OneDeviceTrainsAsTheHost) {
  TESSERA_NEEDS_GPUS(1);
  ExpectAsOnTheHost(RigOf(GetParam(), 1));
}

// Ranks that share a device, whose gradients go by way of the host.
TEST_P(TrainingGpuTest, FourRanksOfOneDeviceTrainAsTheHost) {
  TESSERA_NEEDS_GPUS(1);
  TrainingRig rig = RigOf(GetParam(), 4);
  rig.wrap = [](int, World& world) {
    return MakeStagedWorld(std::make_unique<RecordingWorld>(&world, nullptr));
  };
  ExpectAsOnTheHost(std::move(rig));
}

INSTANTIATE_TEST_SUITE_P(Cases, TrainingGpuTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

using MemoryGpuTest = GpuTest;

TEST_F(MemoryGpuTest, TheAllocatorAndTheRestOfTheDeviceAreTold) {
  TESSERA_NEEDS_GPUS(1);
  const GpuMemory before = gpu_->Memory(true);
  const at::Tensor held = at::empty({64 << 20}, at::device(at::kCUDA).dtype(at::kByte));
  {
    const at::Tensor freed = at::empty({96 << 20}, at::device(at::kCUDA).dtype(at::kByte));
    EXPECT_GE(gpu_->Memory(true).allocated, before.allocated + (160 << 20));
  }
  const GpuMemory after = gpu_->Memory(true);
  EXPECT_GE(after.largest_block, 96 << 20);
  EXPECT_GT(after.other(), 0) << "CUDA's context";
  gpu_->EmptyCache();
  EXPECT_LE(gpu_->Memory(true).reserved, after.reserved - (96 << 20));
}

TEST_F(MemoryGpuTest, OneDeviceForTwoRanksIsRefusedBeforeNcclIsAsked) {
  TESSERA_NEEDS_GPUS(1);
  MemoryRendezvous rendezvous;
  std::vector<absl::Status> results(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      EXPECT_OK(gpu_->Use(0));
      NcclOptions options;
      options.rank = rank;
      options.size = 2;
      results[rank] = gpu_->MakeWorld(options, &rendezvous, MakeLoopbackWorld()).status();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const absl::Status& result : results) {
    EXPECT_TRUE(absl::IsFailedPrecondition(result)) << result;
    EXPECT_NE(result.message().find("ranks 0 and 1 use one GPU"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera::worker

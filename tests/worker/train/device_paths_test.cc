// What training on a device does otherwise than on the host, as far as no device is needed for it: the order
// of collectives, staging, the portable kernels in place of the host's loops, and steps that run out of
// memory.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <atomic>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "scheduler/plan/layer_budgets.h"
#include "tests/status.h"
#include "tests/worker/kernels/portable_device.h"
#include "tests/worker/parallel/recording_world.h"
#include "tests/worker/train/training_rig.h"
#include "worker/comm/staged_world.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Regime {
  const char* name;
  plan::Granularity granularity;
  bool backward, streamed, sharded;
};

const Regime kRegimes[] = {
    {"blocks", plan::Granularity::kBlock, false, false, false},
    {"neurons", plan::Granularity::kNeuron, false, false, false},
    {"backward", plan::Granularity::kBlock, true, false, false},
    {"streamed", plan::Granularity::kBlock, true, true, false},
    {"fsdp", plan::Granularity::kBlock, false, false, true},
    {"fsdp_neurons", plan::Granularity::kNeuron, false, false, true},
    {"fsdp_backward", plan::Granularity::kBlock, true, false, true},
};

class EveryRegime : public testing::TestWithParam<Regime> {
 protected:
  static TrainingRig Rig() {
    TrainingRig rig;
    rig.ranks = 4;
    rig.coverage = 0.5;
    rig.granularity = GetParam().granularity;
    rig.options.store.backward_masking = GetParam().backward;
    rig.options.store.streamed = GetParam().streamed;
    rig.options.store.sharded = GetParam().sharded;
    rig.options.reducer.bucket_bytes = 512;  // several a group
    rig.options.schedule.total_steps = 2;
    rig.options.accumulation = 2;
    return rig;
  }
};

// The n-th collective of a group, on all its members.
using Node = std::pair<std::string, int>;

// Empty: there is an order of all collectives that every rank's own order agrees with.
std::set<Node> InCycles(const std::vector<std::vector<StartedCollective>>& ranks, Channel channel) {
  std::map<Node, std::set<Node>> after;
  std::map<Node, int> before;
  for (const auto& log : ranks) {
    std::map<std::string, int> count;
    Node last;
    bool first = true;
    for (const StartedCollective& started : log) {
      if (started.channel != channel) continue;
      const Node node{started.group, count[started.group]++};
      before.try_emplace(node, 0);
      if (!first && after[last].insert(node).second) ++before[node];
      last = node;
      first = false;
    }
  }
  std::vector<Node> ready;
  std::set<Node> left;
  for (const auto& [node, edges] : before) {
    left.insert(node);
    if (edges == 0) ready.push_back(node);
  }
  while (!ready.empty()) {
    const Node node = ready.back();
    ready.pop_back();
    left.erase(node);
    for (const Node& next : after[node]) {
      if (--before[next] == 0) ready.push_back(next);
    }
  }
  return left;
}

// On a device all collectives of a channel run on one stream, one after the other: were two ranks to start
// those of two groups in opposite orders, both would wait for ever. Gloo would not notice.
TEST_P(EveryRegime, RanksStartTheCollectivesOfAChannelInOneOrder) {
  TrainingRig rig = Rig();
  std::vector<std::vector<StartedCollective>> logs(rig.ranks);
  rig.wrap = [&](int rank, World& world) { return std::make_unique<RecordingWorld>(&world, &logs[rank]); };
  for (const RankOutcome& outcome : rig.Train()) ASSERT_OK(outcome.result);
  size_t recorded = 0;
  for (const auto& log : logs) recorded += log.size();
  EXPECT_GT(recorded, 0u);
  EXPECT_THAT(InCycles(logs, Channel::kMain), IsEmpty());
  EXPECT_THAT(InCycles(logs, Channel::kWeights), IsEmpty());
}

TEST_P(EveryRegime, StagingThroughTheHostChangesNoBit) {
  TrainingRig rig = Rig();
  const std::vector<RankOutcome> plain = rig.Train();
  rig.wrap = [](int, World& world) {
    return MakeStagedWorld(std::make_unique<RecordingWorld>(&world, nullptr), Staged::kAll);
  };
  const std::vector<RankOutcome> staged = rig.Train();
  for (int rank = 0; rank < rig.ranks; ++rank) {
    ASSERT_OK(staged[rank].result) << staged[rank].result.status();
    EXPECT_TRUE(SameBits(plain[rank], staged[rank]));
    EXPECT_EQ(plain[rank].reports.steps.back().traffic_bytes,
              staged[rank].reports.steps.back().traffic_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Regimes, EveryRegime, testing::ValuesIn(kRegimes),
                         [](const auto& info) { return std::string(info.param.name); });

DroppingOptions Dropping(const TrainingRig& rig, const DroppingRule& rule, bool freeze) {
  DroppingOptions options;
  options.rule = &rule;
  options.importance_share = rule.needs().default_share;
  if (rule.needs().residual) options.residual = ResidualKeep::kBf16;
  options.freeze_unsent = freeze;
  std::vector<plan::LayerDemand> layers;
  for (const auto& parameter : rig.model.shape().parameters)
    layers.push_back({.elements = parameter.elements()});
  options.kept = *plan::LayerBudgets(0.3, layers);
  return options;
}

// The kernels' functions instead of the host's loops: the same bits, as nothing is rounded otherwise. With
// the optimizer's step in the same pass, the same but for the order of its operations.
TEST(DroppingOnPortableKernels, TrainsAsOnTheHost) {
  PortableKeptDevice device;
  for (const DroppingRule* rule : DroppingRules()) {
    if (rule->needs().agreement == RuleAgreement::kNone) continue;
    for (const bool freeze : {false, true}) {
      TrainingRig rig;
      rig.ranks = 2;
      rig.options.dropping = Dropping(rig, *rule, freeze);
      const std::vector<RankOutcome> host = rig.Train();
      rig.options.dropping->device = &device;
      const std::vector<RankOutcome> portable = rig.Train();
      rig.options.dropping->fused = true;
      const std::vector<RankOutcome> fused = rig.Train();
      for (int rank = 0; rank < 2; ++rank) {
        ASSERT_OK(host[rank].result) << rule->name() << host[rank].result.status();
        ASSERT_OK(fused[rank].result) << rule->name() << fused[rank].result.status();
        EXPECT_TRUE(SameBits(host[rank], portable[rank])) << rule->name() << freeze;
        EXPECT_TRUE(SameBits(fused[0], fused[rank])) << rule->name() << freeze;
        // |m| / sqrt(v) is the same for all elements after their first gradient: which are picked hangs on
        // how its last bit is rounded.
        if (rule->needs().first_moment) continue;
        // Six steps of at most the learning rate, each right to a few roundings.
        EXPECT_LT(LargestDifference(host[rank].weights, fused[rank].weights), 2e-5) << rule->name() << freeze;
      }
    }
  }
}

// Runs out of memory once: in the given forward pass, or in the backward pass that follows it.
class Greedy final : public Model {
 public:
  Greedy(const ToyModel* model, int pass, bool backward, int times)
      : model_(model), pass_(pass), backward_(backward), left_(times) {}
  const plan::ModelShape& shape() const override { return model_->shape(); }
  const ModelInput& input() const override { return model_->input(); }
  void Initialize(int parameter, uint64_t seed, at::Tensor& out) const override {
    model_->Initialize(parameter, seed, out);
  }
  at::Tensor Loss(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    if (!at::GradMode::is_enabled() || pass_.fetch_sub(1) > 0 || left_.fetch_sub(1) <= 0) {
      return model_->Loss(weights, batch, runner);
    }
    if (!backward_) Fail();
    class HalfWay final : public BlockRunner {
     public:
      explicit HalfWay(BlockRunner* runner) : BlockRunner(runner->pass()), runner_(runner) {}
      at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override {
        at::Tensor y = runner_->Run(block, x, body);
        if (block == 2) y.register_hook([](const at::Tensor&) { Fail(); });
        return y;
      }

     private:
      BlockRunner* runner_;
    } half_way(&runner);
    return model_->Loss(weights, batch, half_way);
  }
  at::Tensor Logits(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    return model_->Logits(weights, batch, runner);
  }
  std::vector<int> BranchOutputs(int block) const override { return model_->BranchOutputs(block); }
  std::string HuggingFaceConfig() const override { return model_->HuggingFaceConfig(); }

 private:
  static void Fail() { throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "CUDA out of memory."); }

  const ToyModel* model_;
  mutable std::atomic<int> pass_;
  const bool backward_;
  mutable std::atomic<int> left_;
};

class ShortageSink final : public ReportSink {
 public:
  void OnMemoryShortage(int64_t step, const std::string& error) override { told.emplace_back(step, error); }
  std::vector<std::pair<int64_t, std::string>> told;
};

struct Ended {
  std::vector<std::vector<at::Tensor>> weights;
  std::vector<absl::Status> results;
  std::vector<ShortageSink> sinks;
};

Ended TrainGreedy(const TrainingRig& rig, int pass, bool backward, int times) {
  const plan::MaskPlan plan = rig.Plan();
  Ended ended{std::vector<std::vector<at::Tensor>>(rig.ranks), std::vector<absl::Status>(rig.ranks),
              std::vector<ShortageSink>(rig.ranks)};
  RunRanks(rig.ranks, [&](int rank, World& world) {
    const Greedy greedy(&rig.model, pass, backward, rank == 1 ? times : 0);
    TrainerSignals signals;
    const TrainerContext context{&greedy, &plan, &world, &rig.data, nullptr, &ended.sinks[rank], &signals};
    auto trainer = Trainer::Create(rig.options, context);
    ASSERT_OK(trainer);
    ended.results[rank] = (*trainer)->Run().status();
    ended.weights[rank] = KeptWeights((*trainer)->store());
  });
  return ended;
}

TEST(MemoryShortage, AStepThatDidNotFitOnOneRankIsRepeatedOnAllAndNothingIsLost) {
  TrainingRig rig;
  rig.ranks = 3;
  rig.coverage = 2.0 / 3;
  rig.options.accumulation = 2;
  rig.options.reducer.wire = WireType::kBFloat16;
  const Ended plain = TrainGreedy(rig, 0, false, 0);
  for (const int pass : {4, 5}) {  // the first and the last micro-step of the third step
    for (const bool backward : {false, true}) {
      const Ended ended = TrainGreedy(rig, pass, backward, 1);
      for (int rank = 0; rank < rig.ranks; ++rank) {
        ASSERT_OK(ended.results[rank]) << ended.results[rank];
        EXPECT_EQ(LargestDifference(plain.weights[rank], ended.weights[rank]), 0) << pass << backward;
        EXPECT_EQ(ended.sinks[rank].told.size(), rank == 1 ? 1u : 0u);
      }
      EXPECT_EQ(ended.sinks[1].told[0].first, 3);
      EXPECT_THAT(ended.sinks[1].told[0].second, HasSubstr("out of memory"));
    }
  }
}

TEST(MemoryShortage, TheSecondTimeItEndsTheWorkerAsOutOfMemory) {
  TrainingRig rig;
  rig.ranks = 2;
  const Ended ended = TrainGreedy(rig, 2, false, 2);
  EXPECT_TRUE(absl::IsResourceExhausted(ended.results[1])) << ended.results[1];
  EXPECT_TRUE(absl::IsUnavailable(ended.results[0])) << ended.results[0];
}

// It can take no part in the sums then, whether in a pass, after one that was short already, or in waiting
// for sums that are under way; it is evidence for the planner all the same, and its peers do not wait for
// long.
TEST(MemoryShortage, WithinTheSumsItEndsTheWorkerAsOutOfMemoryAndPeersAreToldAtOnce) {
  struct Case {
    const char* what;
    int after;  // of them are still done
  };
  for (const Case& at : {Case{"start all-reduce", 0}, Case{"start all-reduce", 9},
                         Case{"start all-reduce", 12}, Case{"wait for all-reduce", 9}}) {
    TrainingRig rig;
    rig.ranks = 3;
    rig.options.reducer.wire = WireType::kBFloat16;
    std::atomic<int> left = at.after;
    rig.wrap = [&](int rank, World& world) {
      const auto told = [&](const std::string& what) {
        if (!absl::StartsWith(what, at.what) || left.fetch_sub(1) > 0) return;
        throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "CUDA out of memory.");
      };
      return std::make_unique<RecordingWorld>(
          &world, nullptr, rank == 1 ? std::function<void(const std::string&)>(told) : nullptr);
    };
    const std::vector<RankOutcome> outcomes = rig.Train();
    EXPECT_LT(left, 0) << at.what;
    EXPECT_TRUE(absl::IsResourceExhausted(outcomes[1].result.status())) << outcomes[1].result.status();
    for (const int peer : {0, 2}) {
      const absl::Status& status = outcomes[peer].result.status();
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_THAT(status.message(), Not(HasSubstr("imed out"))) << at.what << at.after;
    }
  }
}

// Peers wait for weights that it has not come to send.
TEST(MemoryShortage, WhereWeightsTravelItEndsTheWorkerAtOnce) {
  TrainingRig rig;
  rig.ranks = 2;
  rig.options.store.sharded = true;
  const Ended ended = TrainGreedy(rig, 2, false, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(ended.results[1])) << ended.results[1];
}

}  // namespace
}  // namespace tessera::worker

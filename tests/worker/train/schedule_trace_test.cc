// What a rank computes, starts and waits for in one step, in its order, against what is meant. On a device
// this is the order of launches: Wait is no wait of the host's there, but says where the stream that computes
// waits.
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/status.h"
#include "tests/worker/parallel/recording_world.h"
#include "tests/worker/train/training_rig.h"

namespace tessera::worker {
namespace {

using Trace = std::vector<std::string>;

// Tells when a block's own computation begins, and when the gradient of its output has come.
class TracedModel final : public Model {
 public:
  TracedModel(const ToyModel* model, Trace* trace) : model_(model), trace_(trace) {}
  const plan::ModelShape& shape() const override { return model_->shape(); }
  const ModelInput& input() const override { return model_->input(); }
  void Initialize(int parameter, uint64_t seed, at::Tensor& out) const override {
    model_->Initialize(parameter, seed, out);
  }
  at::Tensor Loss(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    class Traced final : public BlockRunner {
     public:
      Traced(BlockRunner* runner, Trace* trace)
          : BlockRunner(runner->pass()), runner_(runner), trace_(trace) {}
      at::Tensor Run(int block, const at::Tensor& x, const BlockBody& body) override {
        const BlockBody traced = [&, block, trace = trace_](const at::Tensor& input, double scale) {
          trace->push_back(absl::StrCat("forward ", block));
          at::Tensor y = body(input, scale);
          y.register_hook(
              [trace, block](const at::Tensor&) { trace->push_back(absl::StrCat("backward ", block)); });
          return y;
        };
        return runner_->Run(block, x, traced);
      }

     private:
      BlockRunner* const runner_;
      Trace* const trace_;
    } traced(&runner, trace_);
    return model_->Loss(weights, batch, traced);
  }
  at::Tensor Logits(const Weights& weights, const Batch& batch, BlockRunner& runner) const override {
    return model_->Logits(weights, batch, runner);
  }
  std::vector<int> BranchOutputs(int block) const override { return model_->BranchOutputs(block); }
  std::string HuggingFaceConfig() const override { return model_->HuggingFaceConfig(); }

 private:
  const ToyModel* const model_;
  Trace* const trace_;
};

// Of rank 0's first step; without the rest of the run.
std::string FirstStep(TrainingRig rig) {
  rig.ranks = 2;
  rig.model = ToyModel(3);
  rig.options.schedule.total_steps = 1;
  rig.options.checksum_interval = 0;
  std::vector<Trace> traces(rig.ranks);
  const plan::MaskPlan plan = rig.Plan();
  RunRanks(rig.ranks, [&](int rank, World& world) {
    Trace& trace = traces[rank];
    bool over = false;
    RecordingWorld recording(&world, nullptr, [&](const std::string& told) {
      if (!over) trace.push_back(told);
    });
    struct Sink final : ReportSink {
      bool* over;
      void OnStep(const StepReport&) override { *over = true; }
    } sink;
    sink.over = &over;
    const TracedModel model(&rig.model, &trace);
    TrainerSignals signals;
    const TrainerContext context{&model, &plan, &recording, &rig.data, nullptr, &sink, &signals};
    auto trainer = Trainer::Create(rig.options, context);
    ASSERT_OK(trainer);
    const auto result = (*trainer)->Run();
    ASSERT_OK(result);
  });
  return absl::StrCat("\n", absl::StrJoin(traces[0], "\n"), "\n");
}

// A block has 528 parameters; what is outside the blocks, 624. Nothing is waited for before backward is over.
TEST(ScheduleTrace, GradientsOfABlockAreSentWhileTheBlocksBeforeItAreComputed) {
  TrainingRig rig;
  EXPECT_EQ(FirstStep(rig), R"(
forward 0
forward 1
forward 2
backward 2
start all-reduce {0,1} 528
backward 1
start all-reduce {0,1} 528
backward 0
start all-reduce {0,1} 528
start all-reduce {0,1} 624
wait for all-reduce {0,1} 528
wait for all-reduce {0,1} 528
wait for all-reduce {0,1} 528
wait for all-reduce {0,1} 624
)");
}

// A shard is half a block. One gather is under way beside the block that computes, and one sum of gradients
// beside the block whose backward runs: memory for two blocks and no more.
TEST(ScheduleTrace, ShardsOfTheNextBlockAreGatheredWhileOneIsComputed) {
  TrainingRig rig;
  rig.options.store.sharded = true;
  EXPECT_EQ(FirstStep(rig), R"(
start all-gather {0,1} 312
wait for all-gather {0,1} 312
start all-gather {0,1} 264
wait for all-gather {0,1} 264
start all-gather {0,1} 264
forward 0
wait for all-gather {0,1} 264
start all-gather {0,1} 264
forward 1
wait for all-gather {0,1} 264
forward 2
backward 2
start all-gather {0,1} 264
wait for all-gather {0,1} 264
start all-gather {0,1} 264
backward 1
start reduce-scatter {0,1} 528
wait for all-gather {0,1} 264
start all-gather {0,1} 264
backward 0
wait for reduce-scatter {0,1} 528
start reduce-scatter {0,1} 528
wait for all-gather {0,1} 264
wait for reduce-scatter {0,1} 528
start reduce-scatter {0,1} 528
start reduce-scatter {0,1} 624
wait for reduce-scatter {0,1} 624
wait for reduce-scatter {0,1} 528
)");
}

}  // namespace
}  // namespace tessera::worker

// A ResNet learns real images: scikit-learn's digits as CIFAR records.
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/status.h"
#include "tests/worker/data/digits.h"
#include "tests/worker/parallel/rank_threads.h"
#include "tests/worker/train/dense_simulation.h"
#include "tests/worker/train/training_rig.h"
#include "worker/data/image_source.h"
#include "worker/data/synthetic_dataset.h"
#include "worker/train/trainer.h"

namespace tessera::worker {
namespace {

struct Result {
  double accuracy = 0;
  std::vector<at::Tensor> buffers;
};

class AccuracySink final : public ReportSink {
 public:
  void OnAccuracy(int64_t, double accuracy) override { last = accuracy; }
  double last = 0;
};

// Two ranks; the small stem of ImageNet keeps the features at 8 x 8.
std::vector<Result> TrainDigits(double coverage, NormEstimate norm) {
  const std::string folder =
      ::testing::TempDir() + "/digits-" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::create_directories(folder);
  WriteDigitsAsCifar(folder);
  const auto model = *MakeModel({.config_json = R"({"model_type": "torchvision-resnet", "stem": "imagenet",
      "depths": [3, 3], "widths": [16, 32], "image_size": 32, "num_labels": 10})"});
  plan::MaskRequest request;
  request.workers = 2;
  request.coverage = coverage;
  request.scheme = coverage == 1 ? plan::Scheme::kFull : plan::Scheme::kCyclic;
  const auto plan = *plan::MakeMaskPlan(model->shape(), request);
  const auto open = [&](DataPart part) {
    // A digit in a mirror is another one, or none.
    return MakeImageDataset(*OpenImages(folder, part, 32), {.augmentation = false});
  };
  TrainerOptions options;
  options.batch = 16;
  options.targets_per_sample = 1;
  options.schedule.total_steps = 150;
  options.schedule.warmup_steps = 10;
  options.schedule.peak = 0.01;
  options.norm_estimate = norm;
  std::vector<Result> results(2);
  RunRanks(2, [&](int rank, World& world) {
    const auto train = open(DataPart::kTraining), validation = open(DataPart::kValidation);
    ASSERT_OK(train->Check(model->input())) << train->Check(model->input());
    AccuracySink sink;
    TrainerSignals signals;
    const TrainerContext context{model.get(), &plan, &world, train.get(), validation.get(), &sink, &signals};
    auto trainer = Trainer::Create(options, context);
    ASSERT_OK(trainer);
    const auto result = (*trainer)->Run();
    ASSERT_OK(result);
    results[rank].accuracy = sink.last;
    const Weights& weights = (*trainer)->store().weights();
    for (size_t i = model->shape().parameters.size(); i < weights.size(); ++i) {
      results[rank].buffers.push_back(weights[i].clone());
    }
  });
  return results;
}

void ExpectLearnt(const std::vector<Result>& results, double least) {
  EXPECT_GT(results[0].accuracy, least);
  EXPECT_EQ(results[0].accuracy, results[1].accuracy);
  for (size_t i = 0; i < results[0].buffers.size(); ++i) {
    EXPECT_TRUE(at::equal(results[0].buffers[i], results[1].buffers[i])) << i;
  }
}

TEST(ImageTraining, DataParallelLearnsDigits) { ExpectLearnt(TrainDigits(1, NormEstimate::kAssembled), 0.9); }

TEST(ImageTraining, HalfOfTheMaskableBlocksOnEachRankLearnsThemTooWithEstimatedNorms) {
  ExpectLearnt(TrainDigits(0.5, NormEstimate::kAssembled), 0.85);
}

TEST(ImageTraining, AveragedNormsAreTheSameOnAllRanks) {
  // Of subnetworks, not of the model they are used in: worse, but no guess.
  ExpectLearnt(TrainDigits(0.5, NormEstimate::kAveraged), 0.5);
}

// Channels and blocks, both maskings, with shards and recomputed blocks: batch norm and strided shortcuts
// included.
TEST(ImageTraining, MaskedResNetsTrainLikeTheDenseSimulation) {
  const auto model = *MakeModel({.config_json = R"({"model_type": "torchvision-resnet", "depths": [2, 1],
      "widths": [8, 16], "image_size": 8, "num_labels": 5})"});
  const auto data = MakeSyntheticDataset(model->input(), 1000, 1, 7);
  constexpr int kRanks = 3;
  for (const auto granularity : {plan::Granularity::kBlock, plan::Granularity::kNeuron}) {
    for (const bool backward : {false, true}) {
      for (const bool sharded : {false, true}) {
        SCOPED_TRACE(absl::StrCat("neurons ", granularity == plan::Granularity::kNeuron, " backward ",
                                  backward, " sharded ", sharded));
        plan::MaskRequest request;
        request.workers = kRanks;
        request.coverage = 0.67;
        request.granularity = granularity;
        request.scheme = plan::Scheme::kCyclic;
        request.ends_always_on = false;
        const auto plan = *plan::MakeMaskPlan(model->shape(), request);
        TrainerOptions options;
        options.batch = 4;
        options.targets_per_sample = 1;
        options.schedule.total_steps = 3;
        options.schedule.peak = 0.05;
        options.optimizer.name = "sgd";
        options.optimizer.momentum = 0.9;
        options.store.backward_masking = options.store.streamed = backward;
        options.store.sharded = sharded;
        options.runner.checkpoint_every = sharded ? 1 : 0;
        options.runner.residual = ResidualScale::kNone;
        const std::vector<at::Tensor> expected = SimulateDense(*model, *data, plan, options);
        RunRanks(kRanks, [&](int, World& world) {
          ReportSink sink;
          TrainerSignals signals;
          const TrainerContext context{model.get(), &plan, &world, data.get(), nullptr, &sink, &signals};
          auto trainer = Trainer::Create(options, context);
          ASSERT_OK(trainer);
          const auto result = (*trainer)->Run();
          ASSERT_OK(result);
          // Convolutions of fewer channels sum in another order.
          EXPECT_LT(LargestDifference(KeptWeights((*trainer)->store()), expected), 2e-4);
        });
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker

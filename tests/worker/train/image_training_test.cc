// A ResNet learns real images: scikit-learn's digits as CIFAR records.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/worker/data/digits.h"
#include "tests/worker/parallel/rank_threads.h"
#include "worker/data/image_source.h"
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
    ASSERT_TRUE(train->Check(model->input()).ok()) << train->Check(model->input());
    AccuracySink sink;
    TrainerSignals signals;
    const TrainerContext context{model.get(), &plan, &world, train.get(), validation.get(), &sink, &signals};
    auto trainer = Trainer::Create(options, context);
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    const auto result = (*trainer)->Run();
    ASSERT_TRUE(result.ok()) << result.status();
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

}  // namespace
}  // namespace tessera::worker

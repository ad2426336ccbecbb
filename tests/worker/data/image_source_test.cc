#include "worker/data/image_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>

#include "tests/status.h"
#include "tests/worker/data/digits.h"

namespace tessera::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Images : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        ::testing::TempDir() + "/images-" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }
  static std::string Cifar(int records, int label, int labels = 1) {
    std::string bytes;
    for (int i = 0; i < records; ++i) {
      bytes += std::string(static_cast<size_t>(labels), static_cast<char>(label + i));
      for (int p = 0; p < 3072; ++p) bytes.push_back(static_cast<char>((p * 7 + i) & 0xff));
    }
    return bytes;
  }
  static std::string Why(const absl::Status& status) { return std::string(status.message()); }
  std::string folder_;
};

const ModelInput kTen{.task = Task::kImageClass, .classes = 10, .channels = 3, .height = 32, .width = 32};

TEST_F(Images, CifarRecordsAreReadAsTheyWereWritten) {
  Write("data_batch_1.bin", Cifar(3, 0));
  Write("data_batch_2.bin", Cifar(2, 5));
  Write("test_batch.bin", Cifar(1, 9));
  auto source = OpenImages(folder_, DataPart::kTraining, 32);
  ASSERT_OK(source);
  EXPECT_EQ((*source)->images(), 5);
  EXPECT_EQ((*source)->label(3), 5);
  std::vector<uint8_t> pixels(3072);
  ASSERT_OK((*source)->Read(4, pixels));
  EXPECT_EQ(pixels[100], (100 * 7 + 1) & 0xff);
  EXPECT_EQ((*OpenImages(folder_, DataPart::kValidation, 32))->label(0), 9);

  const auto data = MakeImageDataset(*std::move(source), {});
  const std::vector<Sample> samples = {{4, 0}};
  const Batch batch = *data->Read(samples);
  EXPECT_EQ(batch.inputs.sizes(), at::IntArrayRef({1, 3, 32, 32}));
  EXPECT_NEAR(batch.inputs[0][0][3][4].item<double>(), (((100 * 7 + 1) & 0xff) / 255.0 - 0.4914) / 0.2470,
              1e-4);
}

TEST_F(Images, OfCifar100TheFineLabelCounts) {
  std::string bytes = Cifar(2, 40, 2);
  bytes[0] = 3;  // coarse
  const auto source = OpenImages(Write("train.bin", bytes), DataPart::kTraining, 32);
  ASSERT_OK(source);
  EXPECT_EQ((*source)->images(), 2);
  EXPECT_EQ((*source)->label(0), 40);
}

TEST_F(Images, WhatIsWrongIsToldWithFileAndOffset) {
  const std::string path = Write("cut.bin", Cifar(2, 0).substr(0, 5000));
  EXPECT_THAT(Why(OpenImages(path, DataPart::kTraining, 32).status()),
              AllOf(HasSubstr(path), HasSubstr("offset 3073 has 1927 of 3073 bytes")));
  EXPECT_EQ(OpenImages(path, DataPart::kTraining, 32).status().code(), absl::StatusCode::kDataLoss);

  const std::string labels = Write("labels.bin", Cifar(3, 8));
  const auto data = MakeImageDataset(*OpenImages(labels, DataPart::kTraining, 32), {});
  EXPECT_THAT(Why(data->Check(kTen)),
              AllOf(HasSubstr(labels), HasSubstr("label at offset 6146 is 10"), HasSubstr("10 classes")));
  ModelInput other = kTen;
  other.height = other.width = 224;
  EXPECT_THAT(Why(data->Check(other)), AllOf(HasSubstr("3 x 32 x 32"), HasSubstr("3 x 224 x 224")));
  other = {.task = Task::kNextToken, .classes = 5, .vocab_size = 5};
  EXPECT_THAT(Why(data->Check(other)), HasSubstr("classify images"));
}

TEST_F(Images, IdxFilesAreCheckedAgainstTheirHeaders) {
  const auto digits = OpenImages(DigitsFolder(), DataPart::kValidation, 8);
  ASSERT_OK(digits);
  EXPECT_EQ((*digits)->images(), 297);
  EXPECT_EQ((*digits)->format().height, 8);
  const std::string images = FileBytes(DigitsFolder() + "/t10k-images-idx3-ubyte");
  const std::string labels = FileBytes(DigitsFolder() + "/t10k-labels-idx1-ubyte");
  const std::string path = Write("a-images-idx3-ubyte", images.substr(0, 1000));
  Write("a-labels-idx1-ubyte", labels);
  EXPECT_THAT(Why(OpenImages(path, DataPart::kTraining, 8).status()),
              AllOf(HasSubstr(path), HasSubstr("19024 bytes"), HasSubstr("ends at offset 1000")));
  Write("a-images-idx3-ubyte", images);
  std::string fewer = labels.substr(0, 8 + 296);
  fewer[7] = static_cast<char>(296 & 0xff);
  Write("a-labels-idx1-ubyte", fewer);
  EXPECT_THAT(Why(OpenImages(path, DataPart::kTraining, 8).status()), HasSubstr("296 labels for 297 images"));
}

TEST_F(Images, GreyImagesAreRepeatedForAModelOfThreeChannels) {
  const auto data = MakeImageDataset(*OpenImages(DigitsFolder(), DataPart::kTraining, 8), {.channels = 3});
  ModelInput input = kTen;
  input.height = input.width = 8;
  EXPECT_OK(data->Check(input)) << data->Check(input);
  const std::vector<Sample> samples = {{0, 0}};
  const Batch batch = *data->Read(samples);
  EXPECT_TRUE(at::equal(batch.inputs[0][0], batch.inputs[0][2]));
}

TEST_F(Images, ADrawSettlesWhatHappensToAnImage) {
  Write("data_batch_1.bin", Cifar(1, 0));
  const auto open = [&](bool augmentation) {
    return MakeImageDataset(*OpenImages(folder_, DataPart::kTraining, 32), {.augmentation = augmentation});
  };
  const auto image = [](const Dataset& data, uint64_t draw) {
    const std::vector<Sample> samples = {{0, draw}};
    return data.Read(samples)->inputs;
  };
  const auto data = open(true);
  const at::Tensor plain = image(*data, 0);
  EXPECT_TRUE(at::equal(plain, image(*open(false), 12345)));
  EXPECT_TRUE(at::equal(image(*data, 12345), image(*data, 12345)));
  int changed = 0;
  for (uint64_t draw = 1; draw < 50; ++draw)
    changed += !at::equal(plain, image(*data, draw * 0x9e3779b97f4a7c15ULL));
  EXPECT_GT(changed, 40);  // 1 of 162 stays as it is
}

// A portable way to make an image: an uncompressed bitmap.
std::string Bitmap(int width, int height, uint8_t red) {
  const auto word = [](uint32_t v) {
    return std::string{static_cast<char>(v), static_cast<char>(v >> 8), static_cast<char>(v >> 16),
                       static_cast<char>(v >> 24)};
  };
  const int row = (3 * width + 3) / 4 * 4;
  std::string bytes = "BM" + word(54 + row * height) + word(0) + word(54) + word(40) + word(width) +
                      word(height) + std::string{1, 0, 24, 0} + word(0) + word(row * height) + word(0) +
                      word(0) + word(0) + word(0);
  for (int y = 0; y < height; ++y) {
    std::string line;
    for (int x = 0; x < width; ++x) line += std::string{0, 0, static_cast<char>(red)};
    line.resize(row);
    bytes += line;
  }
  return bytes;
}

TEST_F(Images, FoldersAreClassesAndTheMiddleSquareIsScaled) {
  for (const char* name : {"train/cat", "train/dog", "val/cat"})
    std::filesystem::create_directories(folder_ + "/" + name);
  Write("train/cat/1.bmp", Bitmap(40, 20, 200));
  Write("train/dog/1.bmp", Bitmap(9, 30, 100));
  Write("val/cat/broken.png", "not an image");
  const auto source = OpenImages(folder_, DataPart::kTraining, 16);
  ASSERT_OK(source);
  EXPECT_EQ((*source)->images(), 2);
  EXPECT_EQ((*source)->label(1), 1);
  std::vector<uint8_t> pixels(3 * 16 * 16);
  ASSERT_OK((*source)->Read(1, pixels));
  EXPECT_EQ(pixels[0], 100);
  EXPECT_EQ(pixels[2 * 256 - 1], 0);
  const auto broken = OpenImages(folder_, DataPart::kValidation, 16);
  ASSERT_OK(broken);
  EXPECT_THAT(Why((*broken)->Read(0, pixels)), HasSubstr("broken.png"));
}

}  // namespace
}  // namespace tessera::worker

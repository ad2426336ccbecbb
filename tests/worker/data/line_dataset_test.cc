#include "worker/data/line_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>

#include "tests/status.h"
#include "worker/data/word_piece.h"

namespace tessera::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Lines : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        ::testing::TempDir() + "/lines-" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
    return folder_ + "/" + name;
  }
  std::string folder_;
};

TEST_F(Lines, WordPiecesAreTheLongestKnown) {
  Write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\n,\ncafe\n\xe4\xb8\xad\n");
  const auto pieces = WordPiece::Open(folder_);
  ASSERT_OK(pieces);
  EXPECT_THAT((*pieces)->Encode("Unaffable,  CAF\xc3\x89 \xe4\xb8\xad\xe4\xb8\xad odd"),
              ElementsAre(5, 6, 7, 8, 9, 10, 10, 1));
  EXPECT_EQ((*pieces)->vocab_size(), 11);
  Write("vocab.txt", "a\nb\n");
  EXPECT_THAT(std::string(WordPiece::Open(folder_).status().message()), HasSubstr("[CLS]"));
}

TEST_F(Lines, TokensToTellAreMaskedByTheDraw) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += std::string(100, static_cast<char>('a' + i % 26)) + "\n\n";
  const auto data = OpenLines(Write("text.txt", text), *OpenTextCodec(""), 64, Task::kMaskedToken);
  ASSERT_OK(data);
  EXPECT_EQ((*data)->samples(), 50);
  std::vector<Sample> samples;
  for (int i = 0; i < 50; ++i) samples.push_back({i, 77U + static_cast<uint64_t>(i) * 1000003});
  const Batch batch = *(*data)->Read(samples);
  ASSERT_EQ(batch.inputs.sizes(), at::IntArrayRef({50, 64}));
  const at::Tensor told = batch.targets != kIgnoredTarget;
  EXPECT_EQ(told.sum().item<int64_t>(), batch.target_count);
  EXPECT_NEAR(static_cast<double>(batch.target_count) / (50 * 62), 0.15, 0.02);
  const double masked = batch.inputs.eq(259).logical_and(told).sum().item<double>();
  EXPECT_NEAR(masked / static_cast<double>(batch.target_count), 0.8, 0.06);
  EXPECT_TRUE(batch.inputs.select(1, 0).eq(256).all().item<bool>());
  EXPECT_TRUE(batch.inputs.select(1, 63).eq(257).all().item<bool>());
  EXPECT_TRUE(at::equal(batch.inputs, (*data)->Read(samples)->inputs));
  for (Sample& sample : samples) sample.draw = 0;  // an evaluation tells the same ones each time
  EXPECT_FALSE(at::equal(batch.targets, (*data)->Read(samples)->targets));
  EXPECT_TRUE(at::equal((*data)->Read(samples)->targets, (*data)->Read(samples)->targets));
}

TEST_F(Lines, ShortTextsArePadded) {
  const auto data =
      OpenLines(Write("text.txt", "1\tab\n0\tabcd\n"), *OpenTextCodec(""), 64, Task::kTextClass);
  const std::vector<Sample> samples = {{0}, {1}};
  const Batch batch = *(*data)->Read(samples);
  EXPECT_TRUE(at::equal(batch.targets, at::tensor({1, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.inputs[0], at::tensor({256, 'a', 'b', 257, 258, 258}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.padding[0], at::tensor({0, 0, 0, 0, 1, 1}, at::kLong).to(at::kBool)));
}

TEST_F(Lines, WhatIsWrongIsToldWithFileAndOffset) {
  const std::string path = Write("text.txt", "1\tab\n7\tabcd\n");
  const auto data = *OpenLines(path, *OpenTextCodec(""), 64, Task::kTextClass);
  const ModelInput input{.task = Task::kTextClass, .classes = 3, .vocab_size = 260, .max_length = 64};
  EXPECT_THAT(std::string(data->Check(input).message()),
              AllOf(HasSubstr(path), HasSubstr("offset 5"), HasSubstr("below 3")));
  ModelInput small = input;
  small.vocab_size = 100;
  EXPECT_THAT(std::string(data->Check(small).message()), HasSubstr("260 tokens, the model's vocabulary 100"));
  small = input;
  small.max_length = 32;
  EXPECT_THAT(std::string(data->Check(small).message()), HasSubstr("32 positions"));
  EXPECT_EQ(OpenLines(folder_ + "/none", *OpenTextCodec(""), 64, Task::kTextClass).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tessera::worker

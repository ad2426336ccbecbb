#include "worker/data/token_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tests/status.h"
#include "worker/data/sampler.h"
#include "worker/data/shard_format.h"
#include "worker/data/shard_writer.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

class TokenShards : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("tokens-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const ShardFormat& format, const std::vector<int32_t>& tokens, int64_t shard_tokens = 1 << 20,
             const std::string& kind = "train") {
    ShardWriter writer(folder_, kind, format, shard_tokens);
    ASSERT_OK(writer.Append(tokens));
    ASSERT_OK(writer.Finish());
  }
  std::string File(const std::string& name) const { return folder_ / name; }

  std::filesystem::path folder_;
};

std::vector<int32_t> Counting(int count, int modulo) {
  std::vector<int32_t> tokens(count);
  for (int i = 0; i < count; ++i) tokens[i] = i % modulo;
  return tokens;
}

// Of mapped files, bytes.
int64_t ResidentFileBytes() {
  std::ifstream status("/proc/self/status");
  int64_t bytes = 0;
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    // Of a file system in memory, mapped pages count as shared ones.
    if ((word == "RssFile:" || word == "RssShmem:") && status >> kilobytes) bytes += kilobytes * 1024;
  }
  return bytes;
}

TEST_F(TokenShards, WhatWasReadDoesNotStayResident) {
  constexpr int kTokens = 8 << 20, kLength = 4096;
  Write(kShardFormats[0], Counting(kTokens, 200));
  const auto data = OpenTokenDataset(folder_, DataPart::kTraining);
  ASSERT_OK(data);
  (*data)->Read({0}, kLength);  // the code that reads is resident now
  const int64_t before = ResidentFileBytes();
  ASSERT_GT(before, 0);
  for (int64_t i = 0; i < (*data)->samples(kLength); ++i) (*data)->Read({i}, kLength);
  ASSERT_OK((*data)->CheckTokens(200));
  EXPECT_LT(ResidentFileBytes() - before, int64_t{1} << 20) << "of " << kTokens << " bytes or more";
}

TEST_F(TokenShards, EveryFormatReadsBackWhatWasWritten) {
  for (const ShardFormat& format : kShardFormats) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const int modulo = static_cast<int>(std::min<int64_t>(format.max_token + 1, 100'000));
    Write(format, Counting(1000, modulo));
    const auto data = OpenTokenDataset(folder_, DataPart::kTraining);
    ASSERT_OK(data);
    EXPECT_EQ((*data)->tokens(), 1000);
    EXPECT_EQ((*data)->max_token(), format.max_token);
    const Batch batch = (*data)->Read({2, 0}, 10);
    EXPECT_EQ(batch.target_count, 20);
    for (int64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(batch.inputs[0][i].item<int64_t>(), 20 + i);
      EXPECT_EQ(batch.targets[0][i].item<int64_t>(), 21 + i);
      EXPECT_EQ(batch.inputs[1][i].item<int64_t>(), i);
    }
  }
}

TEST_F(TokenShards, SamplesCrossShardBoundaries) {
  Write(kGpt2Shard, Counting(100, 1000), /*shard_tokens=*/7);
  const auto data = *OpenTokenDataset(File("train-*.bin"), DataPart::kTraining);
  EXPECT_EQ(data->tokens(), 100);
  EXPECT_EQ(data->samples(20), 4);  // the fifth would need token 100
  const Batch batch = data->Read({0, 1, 2, 3}, 20);
  EXPECT_TRUE(at::equal(batch.inputs, at::arange(80, at::kLong).view({4, 20})));
  EXPECT_TRUE(at::equal(batch.targets, at::arange(1, 81, at::kLong).view({4, 20})));
}

TEST_F(TokenShards, ErrorsNameTheFileAndWhatIsWrong) {
  EXPECT_EQ(OpenTokenDataset(File("none*.bin"), DataPart::kTraining).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenTokenDataset(folder_, DataPart::kTraining).status().code(), absl::StatusCode::kNotFound);
  Write(kGpt2Shard, Counting(50, 1000));
  const std::string path = File("train-00000.bin");
  const auto message = [&] {
    const auto data = OpenTokenDataset(path, DataPart::kTraining);
    EXPECT_EQ(data.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(data.status().message()), HasSubstr(path));
    return std::string(data.status().message());
  };
  std::filesystem::resize_file(path, kShardHeaderBytes + 98);
  EXPECT_THAT(message(), ::testing::AllOf(HasSubstr("1124"), HasSubstr("1122")));
  std::filesystem::resize_file(path, 100);
  EXPECT_THAT(message(), HasSubstr("100 bytes"));
  std::ofstream(path, std::ios::binary) << std::string(2000, 'a');
  EXPECT_THAT(message(), HasSubstr("magic"));
}

TEST_F(TokenShards, AFolderOfPreparedTextGivesThePartThatIsAskedFor) {
  Write(kByteShard, Counting(50, 100), 20, "train");
  Write(kByteShard, Counting(30, 100), 1 << 20, "validation");
  const auto tokens = [&](DataPart part) { return (*OpenTokenDataset(folder_, part))->tokens(); };
  EXPECT_EQ(tokens(DataPart::kTraining), 80);  // a folder of someone else's shards: all of them
  std::ofstream(File("dataset.json")) << "{}";
  EXPECT_EQ(tokens(DataPart::kTraining), 50);
  EXPECT_EQ(tokens(DataPart::kValidation), 30);
  std::filesystem::remove(File("validation-00000.bin"));
  const auto missing = OpenTokenDataset(folder_, DataPart::kValidation);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(
      std::string(missing.status().message()),
      ::testing::AllOf(HasSubstr("validation-*.bin"), HasSubstr(folder_), HasSubstr("train-00000.bin")));
}

TEST_F(TokenShards, OneDatasetHasOneFormat) {
  Write(kGpt2Shard, Counting(50, 100), 1 << 20, "a");
  Write(kByteShard, Counting(50, 100), 1 << 20, "b");
  EXPECT_EQ(OpenTokenDataset(folder_, DataPart::kTraining).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(TokenShards, ASampleNeedsOneTokenMoreThanItsLength) {
  Write(kGpt2Shard, Counting(5, 100));
  const auto data = *OpenTokenDataset(folder_, DataPart::kTraining);
  EXPECT_EQ(data->samples(5), 0);
  EXPECT_EQ(data->samples(4), 1);
  EXPECT_EQ(data->samples(0), 0);
}

TEST(Sampler, EachPassVisitsEverySampleOnceInAnotherOrder) {
  for (int64_t samples : {1, 2, 3, 5, 64, 65, 1000, 4097}) {
    const Sampler sampler(samples, 7);
    std::vector<int64_t> first, second;
    for (int64_t i = 0; i < samples; ++i)
      first.push_back(sampler.At(i)), second.push_back(sampler.At(samples + i));
    if (samples > 10) EXPECT_NE(first, second);
    std::sort(first.begin(), first.end());
    std::sort(second.begin(), second.end());
    std::vector<int64_t> all(samples);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(first, all) << samples;
    EXPECT_EQ(second, all) << samples;
  }
}

TEST(Sampler, OrderDependsOnTheSeedAndLooksShuffled) {
  const int64_t samples = 1000;
  const Sampler a(samples, 1), b(samples, 2), again(samples, 1);
  int equal = 0, neighbours = 0;
  for (int64_t i = 0; i < samples; ++i) {
    EXPECT_EQ(a.At(i), again.At(i));
    equal += a.At(i) == b.At(i);
    neighbours += i > 0 && std::abs(a.At(i) - a.At(i - 1)) == 1;
  }
  // Of two random permutations one position agrees on average, two neighbours follow each other.
  EXPECT_LT(equal, 10);
  EXPECT_LT(neighbours, 12);
}

// The same file is compared with tests/peers/sampler.py: peers read what a job reads.
TEST(Sampler, OrderIsThatOfTheGoldenFile) {
  std::ifstream file(std::string(std::getenv("TESSERA_GOLDEN")) + "/sampler.json");
  const auto golden = nlohmann::json::parse(file);
  ASSERT_GE(golden.size(), 2u);
  for (const auto& order : golden) {
    const Sampler sampler(order["samples"], order["seed"]);
    for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(sampler.At(i), order["first"][i]) << "position " << i;
  }
}

TEST(Sampler, RanksAreDisjointAndTogetherTheSameForAnyWorldSize) {
  const Sampler sampler(500, 3);
  const auto step_of = [&](int64_t step, int world, int accumulation, int64_t batch) {
    std::multiset<int64_t> all;
    for (int rank = 0; rank < world; ++rank) {
      for (int micro = 0; micro < accumulation; ++micro) {
        const std::vector<int64_t> shares(world, batch);
        for (const Sample& sample : sampler.MicroBatch(step, micro, accumulation, rank, shares)) {
          all.insert(sample.index);
        }
      }
    }
    return all;
  };
  for (int64_t step : {0, 1, 20, 21, 1000}) {
    const auto one = step_of(step, 1, 1, 24);
    EXPECT_EQ(one.size(), 24u);
    EXPECT_EQ(one, step_of(step, 4, 1, 6));
    EXPECT_EQ(one, step_of(step, 2, 3, 4));
    EXPECT_EQ(one, step_of(step, 1, 6, 4));
  }
  const auto first = step_of(0, 4, 1, 6);
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 24u);
}

TEST(Sampler, UnequalSharesReadTheSameSamplesWithTheSameDraws) {
  const Sampler sampler(500, 3);
  const auto step_of = [&](std::vector<int64_t> shares, int accumulation) {
    std::set<std::pair<int64_t, uint64_t>> all;
    for (int rank = 0; rank < static_cast<int>(shares.size()); ++rank) {
      for (int micro = 0; micro < accumulation; ++micro) {
        const auto batch = sampler.MicroBatch(7, micro, accumulation, rank, shares);
        EXPECT_EQ(batch.size(), static_cast<size_t>(shares[rank]));
        for (const Sample& sample : batch) all.emplace(sample.index, sample.draw);
      }
    }
    return all;
  };
  const auto equal = step_of({6, 6, 6, 6}, 1);
  EXPECT_EQ(equal.size(), 24u);
  EXPECT_EQ(equal, step_of({1, 15, 8}, 1));
  EXPECT_EQ(equal, step_of({3, 0, 1, 4}, 3));
}

TEST(Sampler, TheEndOfTheDataComesToAllRanksInOneStep) {
  const Sampler sampler(10, 1, /*end=*/25);  // two and a half passes
  const std::vector<int64_t> shares = {3, 1};
  std::vector<int64_t> read;
  int64_t step = 0;
  for (bool end = false; !end; ++step) {
    for (int rank : {0, 1}) {
      for (const Sample& sample : sampler.MicroBatch(step, 0, 1, rank, shares)) read.push_back(sample.index);
    }
    end = sampler.EndsWith(step, 1, shares);
  }
  EXPECT_EQ(step, 7);  // of 4 samples; the last has one, which is rank 0's
  EXPECT_EQ(read.size(), 25u);
  EXPECT_EQ(std::set<int64_t>(read.begin(), read.begin() + 10).size(), 10u);
  EXPECT_TRUE(sampler.MicroBatch(6, 0, 1, 1, shares).empty());
}

}  // namespace
}  // namespace tessera::worker

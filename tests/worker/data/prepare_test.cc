#include "worker/data/prepare.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/status.h"
#include "worker/data/text_file.h"
#include "worker/data/token_dataset.h"
#include "worker/data/tokenizer.h"

namespace tessera::worker {
namespace {

std::string SampleText(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text += "Line " + std::to_string(i) +
            ": the quick brown fox jumps over the lazy dog, na\xc3\xafve caf\xc3\xa9 " +
            std::string(i % 7, '!') + "\n";
  }
  return text;
}

class Prepare : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("prepare-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    ASSERT_OK(WriteTextFile(Path("text"), SampleText(3000)));
    options_.inputs = {Path("text")};
    options_.output = Path("out");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ / name; }

  std::string Decoded(const std::string& pattern) const {
    const auto data = OpenTokenDataset(pattern, DataPart::kTraining);
    EXPECT_OK(data);
    const auto tokenizer = OpenTokenizer(Path("out"));
    EXPECT_OK(tokenizer);
    const Batch batch = (*data)->Read({0}, (*data)->tokens() - 1);
    const at::Tensor ids =
        at::cat({batch.inputs[0], batch.targets[0].narrow(0, (*data)->tokens() - 2, 1)}).to(at::kInt);
    return (*tokenizer)->Decode({ids.const_data_ptr<int32_t>(), static_cast<size_t>(ids.numel())});
  }

  std::filesystem::path folder_;
  PrepareOptions options_;
};

TEST_F(Prepare, BytesReadBackAsTheTextSplitAtLines) {
  const auto report = PrepareTokens(options_, nullptr);
  ASSERT_OK(report);
  const std::string text = SampleText(3000);
  EXPECT_EQ(report->train_tokens + report->validation_tokens, static_cast<int64_t>(text.size()));
  EXPECT_NEAR(static_cast<double>(report->validation_tokens) / text.size(), 0.02, 0.005);
  EXPECT_EQ(report->vocab_size, 260);
  const std::string train = Decoded(Path("out/train-*.bin")),
                    validation = Decoded(Path("out/validation-*.bin"));
  EXPECT_EQ(train.size() + validation.size(), text.size());
  EXPECT_EQ(validation.back(), '\n');
  EXPECT_EQ(validation.substr(0, 5), "Line ");
  EXPECT_NE(text.find(validation.substr(0, 40)), std::string::npos);
  EXPECT_EQ(train.find(validation.substr(0, 40)), std::string::npos);
}

TEST_F(Prepare, GzipGivesTheSameTokens) {
  gzFile file = gzopen(Path("text.gz").c_str(), "wb");
  const std::string text = SampleText(3000);
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  ASSERT_OK(PrepareTokens(options_, nullptr));
  const std::string plain = *ReadTextFile(Path("out/train-00000.bin"));
  options_.inputs = {Path("text.gz")};
  options_.output = Path("zipped");
  ASSERT_OK(PrepareTokens(options_, nullptr));
  EXPECT_EQ(plain, *ReadTextFile(Path("zipped/train-00000.bin")));

  const std::string whole = *ReadTextFile(Path("text.gz"));
  ASSERT_OK(WriteTextFile(Path("cut.gz"), whole.substr(0, whole.size() / 2)));
  options_.inputs = {Path("cut.gz")};
  options_.output = Path("cut");
  EXPECT_EQ(PrepareTokens(options_, nullptr).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(std::filesystem::exists(Path("cut")));
}

TEST_F(Prepare, BpeRoundTripsAndIsShorterThanBytes) {
  options_.tokenizer = "bpe";
  options_.vocab_size = 350;
  options_.validation_fraction = 0;
  const auto report = PrepareTokens(options_, nullptr);
  if (report.status().message().find("sanitizers") != std::string::npos) GTEST_SKIP() << report.status();
  ASSERT_OK(report);
  EXPECT_EQ(report->vocab_size, 350);
  EXPECT_EQ(report->validation_tokens, 0);
  EXPECT_LT(report->train_tokens, report->text_bytes / 2);
  EXPECT_EQ(Decoded(Path("out")), SampleText(3000));
  const auto tokenizer = *OpenTokenizer(Path("out"));
  for (const char* text :
       {"unseen \xe6\xbc\xa2 \xf0\x9f\x90\x9f text", "  two  spaces\tand a tab ", "\n\n", ""}) {
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  }
}

TEST_F(Prepare, ATextWrittenAnewIsTheSameText) {
  ASSERT_OK(PrepareTokens(options_, nullptr));
  const std::string text = options_.inputs[0];
  std::filesystem::last_write_time(text, std::filesystem::last_write_time(text) + std::chrono::hours(1));
  const auto again = PrepareTokens(options_, nullptr);
  ASSERT_OK(again);
  EXPECT_TRUE(again->already_there);
  std::fstream(text, std::ios::in | std::ios::out | std::ios::binary).put('#');  // of the same size and name
  EXPECT_TRUE(absl::IsAlreadyExists(PrepareTokens(options_, nullptr).status()));
}

TEST_F(Prepare, TheSameAgainIsDoneAlreadyAndAnythingElseIsRefused) {
  ASSERT_OK(PrepareTokens(options_, nullptr));
  const auto again = PrepareTokens(options_, nullptr);
  ASSERT_OK(again);
  EXPECT_TRUE(again->already_there);
  EXPECT_GT(again->train_tokens, 0);
  options_.validation_fraction = 0.1;
  EXPECT_EQ(PrepareTokens(options_, nullptr).status().code(), absl::StatusCode::kAlreadyExists);
  std::filesystem::create_directories(Path("mine"));
  ASSERT_OK(WriteTextFile(Path("mine/diary"), "dear diary"));
  options_.output = Path("mine");
  EXPECT_EQ(PrepareTokens(options_, nullptr).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(*ReadTextFile(Path("mine/diary")), "dear diary");
}

TEST_F(Prepare, SeveralAtOnceMakeOneDatasetAndLeaveNothingElse) {
  std::vector<absl::StatusOr<PrepareReport>> reports(4, absl::UnknownError("did not end"));
  std::vector<std::thread> threads;
  for (auto& report : reports) {
    threads.emplace_back([&] { report = PrepareTokens(options_, nullptr); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& report : reports) {
    ASSERT_OK(report);
    EXPECT_EQ(report->train_tokens, reports[0]->train_tokens);
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_TRUE(entry.path().filename() == "out" || entry.path().filename() == "text") << entry.path();
  }
}

TEST_F(Prepare, ShardsHaveAtMostTheirSize) {
  options_.shard_tokens = 50'000;
  options_.validation_fraction = 0;
  const auto report = *PrepareTokens(options_, nullptr);
  int shards = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Path("out")))
    shards += entry.path().extension() == ".bin";
  EXPECT_EQ(shards, (report.train_tokens + 49'999) / 50'000);
  EXPECT_EQ(Decoded(Path("out")), SampleText(3000));
}

TEST_F(Prepare, RefusesOptionsThatMakeNoSense) {
  const auto code = [&](auto change) {
    PrepareOptions options = options_;
    change(options);
    return PrepareTokens(options, nullptr).status().code();
  };
  using enum absl::StatusCode;
  EXPECT_EQ(code([](auto& o) { o.inputs.clear(); }), kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.output.clear(); }), kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.tokenizer = "words"; }), kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.validation_fraction = 0.9; }), kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.shard_tokens = 0; }), kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.inputs = {"/does/not/exist"}; }), kNotFound);
  EXPECT_EQ(code([](auto& o) { o.tokenizer = "bpe", o.vocab_size = 100; }), kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.tokenizer = "bpe", o.vocab_size = 60000; }), kInvalidArgument);
}

TEST(ByteTokenizer, RoundTripsAnyBytesAndSkipsSpecialTokens) {
  const auto tokenizer = MakeByteTokenizer();
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  auto tokens = tokenizer->Encode(all);
  tokens.push_back(tokenizer->end_token());
  EXPECT_EQ(tokenizer->Decode(tokens), all);
}

TEST(TextReader, AParquetFileIsNoTextWhateverItIsCalled) {
  const std::string path = ::testing::TempDir() + "/texts.txt";
  std::ofstream(path) << "PAR1" << std::string(100, 'x') << "PAR1";
  const auto reader = TextReader::Open(path);
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(reader.status().message().find("Parquet"), std::string::npos) << reader.status();
  EXPECT_NE(reader.status().message().find("to_json"), std::string::npos) << reader.status();
}

TEST(TextReader, OfJsonLinesTheTextIsReadAndABadLineIsNamed) {
  const std::string path = ::testing::TempDir() + "/texts.jsonl";
  std::ofstream(path) << "{\"text\": \"one\", \"id\": 1}\n{\"text\": \"" << std::string(100'000, 'x')
                      << "\"}\n{\"id\": 3}\n";
  const auto reader = *TextReader::Open(path);
  EXPECT_EQ(*reader->NextLine(), "one\n");
  EXPECT_EQ(reader->NextLine()->size(), 100'001U);
  const auto bad = reader->NextLine();
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(bad.status().message().find(path + ": line 3"), std::string::npos) << bad.status();
}

}  // namespace
}  // namespace tessera::worker

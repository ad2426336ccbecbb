#include "worker/data/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/status.h"
#include "worker/data/byte_pair_model.h"
#include "worker/data/text_file.h"
#include "worker/data/text_split.h"

namespace tessera::worker {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string Golden(const std::string& family) {
  return std::string(std::getenv("TESSERA_GOLDEN")) + "/tokenizers/" + family;
}

// Only what is text: ours gives the bytes of half a character as they are, theirs a replacement for them.
bool IsWhole(const std::string& text) { return text.find("\xef\xbf\xbd") == std::string::npos; }

class TokenizerFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerFamily, MakesTheTokensThatHuggingFacesLibraryMakes) {
  const auto tokenizer = OpenTokenizerJson(Golden(GetParam()));
  ASSERT_OK(tokenizer);
  std::ifstream cases(Golden(GetParam()) + "/cases.jsonl");
  int count = 0;
  for (std::string line; std::getline(cases, line); ++count) {
    const json expected = json::parse(line);
    const std::string text = expected["text"];
    const auto ids = (*tokenizer)->Encode(text);
    EXPECT_EQ(ids, expected["ids"].get<std::vector<int32_t>>()) << line;
    EXPECT_EQ((*tokenizer)->EncodeWhole(text), expected["whole"].get<std::vector<int32_t>>()) << line;
    const std::string decoded = expected["decoded"];
    if (IsWhole(decoded)) {
      EXPECT_EQ((*tokenizer)->Decode(ids), decoded) << line;
    }
  }
  EXPECT_GT(count, 40);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerFamily,
                         ::testing::Values("gpt2", "llama3", "digits", "prefix_space", "llama2", "metaspace",
                                           "unknown"),
                         [](const auto& info) { return std::string(info.param); });

class TokenizerJson : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("tokenizer-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<Tokenizer>> Open(const json& root) {
    EXPECT_OK(WriteTextFile(folder_ / "tokenizer.json", root.dump()));
    return OpenTokenizerJson(folder_);
  }
  static json Small() {
    return {{"model",
             {{"type", "BPE"},
              {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}, {"abc", 5}}},
              {"merges", {"b c", "a b", "ab c"}}}}};
  }

  std::filesystem::path folder_;
};

TEST_F(TokenizerJson, TheEarliestMergeGoesFirstAndThenTheLeftmostPlace) {
  const auto tokenizer = Open(Small());
  ASSERT_OK(tokenizer);
  EXPECT_EQ((*tokenizer)->Encode("abc"), (std::vector<int32_t>{0, 4})) << "b c before a b";
  EXPECT_EQ((*tokenizer)->Encode("abab"), (std::vector<int32_t>{3, 3}));
  EXPECT_EQ((*tokenizer)->Encode("axb"), (std::vector<int32_t>{3}))
      << "without an unknown piece it is dropped";
  json whole = Small();
  whole["model"]["ignore_merges"] = true;
  EXPECT_EQ((*Open(whole))->Encode("abc"), (std::vector<int32_t>{5}));
}

TEST_F(TokenizerJson, WhatIsNotKnownIsRefusedByName) {
  const auto message = [&](const json& root) {
    const absl::Status status = Open(root).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    return std::string(status.message());
  };
  json root = Small();
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}};
  EXPECT_THAT(message(root), HasSubstr("normalizer 'Lowercase'"));
  root = Small();
  root["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  EXPECT_THAT(message(root), HasSubstr("pre_tokenizer 'BertPreTokenizer'"));
  root = Small();
  root["decoder"] = {{"type", "WordPiece"}};
  EXPECT_THAT(message(root), HasSubstr("decoder 'WordPiece'"));
  root = Small();
  root["post_processor"] = {{"type", "BertProcessing"}};
  EXPECT_THAT(message(root), HasSubstr("post_processor 'BertProcessing'"));
  root = Small();
  root["model"]["type"] = "Unigram";
  EXPECT_THAT(message(root), HasSubstr("model 'Unigram'"));
  root = Small();
  root["model"]["end_of_word_suffix"] = "</w>";
  EXPECT_THAT(message(root), HasSubstr("model.end_of_word_suffix"));
}

TEST_F(TokenizerJson, DamageIsNamed) {
  json root = Small();
  root["model"]["merges"].push_back("a z");
  EXPECT_THAT(std::string(Open(root).status().message()), HasSubstr("model.merges[3]"));
  root = Small();
  root["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(std::string(Open(root).status().message()), HasSubstr("pattern '(a'"));
  root = Small();
  root["model"]["vocab"]["a"] = -1;
  EXPECT_TRUE(absl::IsDataLoss(Open(root).status()));
  root.erase("model");
  EXPECT_TRUE(absl::IsDataLoss(Open(root).status()));
  ASSERT_TRUE(WriteTextFile(folder_ / "tokenizer.json", "{").ok());
  EXPECT_TRUE(absl::IsDataLoss(OpenTokenizerJson(folder_).status()));
  EXPECT_TRUE(absl::IsNotFound(OpenTokenizerJson(folder_ / "none").status()));
}

TEST_F(TokenizerJson, OurOwnTokenizersReadThroughItMakeTheSameTokens) {
  const auto bytes = MakeByteTokenizer();
  ASSERT_OK(bytes->Save(folder_));
  const auto same = OpenTokenizerJson(folder_);
  ASSERT_OK(same);
  int line = 0;
  const auto pieces = TrainBpeTokenizer(
      [&](std::string* text) {
        *text = "the other mother of " + std::to_string(line * 7919) +
                " caf\xc3\xa9s there, \xe4\xb8\xad\xe6\x96\x87";
        return line++ < 500;
      },
      310);
  ASSERT_OK(pieces);
  for (const char* text :
       {"", "the other  mother", "caf\xc3\xa9\n\t12", " \xf0\x9f\x98\x80\xe4\xb8\xad ", "zzz"}) {
    EXPECT_EQ((*same)->Encode(text), bytes->Encode(text));
    EXPECT_EQ((*same)->Decode(bytes->Encode(text)), text);
  }
  ASSERT_OK((*pieces)->Save(folder_));
  const auto same_pieces = OpenTokenizerJson(folder_);
  ASSERT_OK(same_pieces);
  for (const char* text :
       {"", "the other  mother", "caf\xc3\xa9\n\t12", " \xf0\x9f\x98\x80\xe4\xb8\xad ", "zzz"}) {
    EXPECT_EQ((*same_pieces)->Encode(text), (*pieces)->Encode(text)) << text;
    EXPECT_EQ((*same_pieces)->Decode((*pieces)->Encode(text)), text);
  }
}

TEST_F(TokenizerJson, AVeryLongWordTakesNoQuadraticTime) {
  // Without a pre-tokenizer a whole text is one word. 2 MB in the test's time limit.
  const auto tokenizer = Open(Small());
  std::string text;
  for (int i = 0; i < 1000000; ++i) text += i % 3 == 0 ? "ab" : "bc";
  EXPECT_GT((*tokenizer)->Encode(text).size(), 100000u);
}

TEST(ValidUtf8, EachByteThatIsNoTextIsReplaced) {
  EXPECT_EQ(ToValidUtf8("a\xff"
                        "b"),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(ToValidUtf8("\xc3"), "\xef\xbf\xbd");
  EXPECT_EQ(ToValidUtf8("\xed\xa0\x80").size(), 9u) << "a surrogate";
  EXPECT_EQ(ToValidUtf8("\xc0\x80").size(), 6u) << "overlong";
  EXPECT_EQ(ToValidUtf8("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
}

}  // namespace
}  // namespace tessera::worker

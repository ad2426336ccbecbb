#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/status.h"
#include "worker/data/text_file.h"
#include "worker/eval/choice_task.h"
#include "worker/eval/multiple_choice.h"
#include "worker/eval/python_text.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

class ChoiceTasks : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("choice-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<ChoiceTask> Read(const std::string& task, const std::string& lines, int64_t limit = 0) {
    EXPECT_OK(WriteTextFile(folder_ / "items.jsonl", lines));
    return ReadChoiceTask(task, folder_ / "items.jsonl", limit);
  }
  ChoiceItem Only(const std::string& task, const std::string& line) {
    const auto read = Read(task, line);
    EXPECT_OK(read);
    return read->items.at(0);
  }

  std::filesystem::path folder_;
};

TEST_F(ChoiceTasks, EachIsPutIntoTheWordsOfItsTemplate) {
  ChoiceItem item = Only(
      "arc_easy",
      R"({"question": "Why?", "choices": {"text": ["a", "b c"], "label": ["1", "2"]}, "answerKey": "2"})");
  EXPECT_EQ(item.context, "Question: Why?\nAnswer:");
  EXPECT_EQ(item.choices, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(item.gold, 1);
  item = Only(
      "arc_easy",
      R"({"question": {"stem": "Why?", "choices": [{"text": "a", "label": "A"}, {"text": "b", "label": "B"}]}, "answerKey": "A"})");
  EXPECT_EQ(item.context, "Question: Why?\nAnswer:");
  EXPECT_EQ(item.gold, 0);

  item = Only("boolq", R"({"passage": "P.", "question": "is it", "label": 1})");
  EXPECT_EQ(item.context, "P.\nQuestion: is it?\nAnswer:");
  EXPECT_EQ(item.choices, (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(item.gold, 1);
  EXPECT_EQ(Only("boolq", R"({"passage": "P.", "question": "is it", "answer": false})").gold, 0);

  item = Only(
      "openbookqa",
      R"({"question_stem": "The sun", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": " B"})");
  EXPECT_EQ(item.context, "The sun");
  EXPECT_EQ(item.gold, 1);

  item = Only(
      "sciq",
      R"({"support": "  S. ", "question": "Q", "distractor1": "d1", "distractor2": "d2", "distractor3": "d3", "correct_answer": "c"})");
  EXPECT_EQ(item.context, "S. \nQuestion: Q\nAnswer:");
  EXPECT_EQ(item.choices, (std::vector<std::string>{"d1", "d2", "d3", "c"}));
  EXPECT_EQ(item.gold, 3);

  item = Only(
      "hellaswag",
      R"({"activity_label": "Cooking", "ctx_a": " [header] How to boil [title] Take water.", "ctx_b": "THE Pot", "endings": ["[step] is  hot. ", "x[y"], "label": "0"})");
  EXPECT_EQ(item.context, "Cooking:  How to boil. Take water. The pot");
  EXPECT_EQ(item.choices, (std::vector<std::string>{" is hot.", "x[y"}));
  EXPECT_EQ(item.gold, 0);
}

TEST_F(ChoiceTasks, ABadLineIsNamedWithFileNumberAndField) {
  const std::string good = R"({"passage": "P.", "question": "q", "label": 1})";
  const auto message = [&](const std::string& task, const std::string& lines) {
    const absl::Status status = Read(task, lines).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message("boolq", good + "\n\n" + R"({"passage": "P.", "label": 1})"),
              HasSubstr("items.jsonl:3: field 'question' is missing"));
  EXPECT_THAT(message("boolq", good + "\n{\"passage\": "), HasSubstr("items.jsonl:2: is no JSON object"));
  EXPECT_THAT(message("boolq", R"({"passage": 7, "question": "q", "label": 1})"),
              HasSubstr("'passage' is no text but 7"));
  EXPECT_THAT(message("boolq", R"({"passage": "P.", "question": "q", "label": 5})"),
              HasSubstr("choice 5 of 2"));
  EXPECT_THAT(message("boolq", R"({"passage": "P.", "question": "q", "label": "x"})"),
              HasSubstr("'label' is no index"));
  EXPECT_THAT(
      message("arc_easy",
              R"({"question": "q", "choices": {"text": ["a", ""], "label": ["A", "B"]}, "answerKey": "A"})"),
      HasSubstr(":1: choice 2 is empty"));
  EXPECT_THAT(
      message("arc_easy", R"({"question": "q", "choices": {"text": [], "label": []}, "answerKey": "A"})"),
      HasSubstr("'answerKey' is 'A'"));
  EXPECT_THAT(
      message("hellaswag",
              R"({"activity_label": "a", "ctx_a": "b", "ctx_b": "c", "endings": ["[x]", "d"], "label": 0})"),
      HasSubstr("choice 1 is empty"));
  EXPECT_THAT(message("boolq", "\n"), HasSubstr("holds no items"));
  EXPECT_THAT(message("winogrande", good),
              HasSubstr("known are arc_easy, boolq, hellaswag, openbookqa, sciq"));
  EXPECT_EQ(Read("boolq", good + "\n" + good + "\nbad", 2)->items.size(), 2u)
      << "what is not wanted is not read";
}

TEST(PythonText, StripsAndCapitalizesUnicode) {
  EXPECT_EQ(Strip("\u3000\u0085 a b \u00a0\x1c"), "a b");
  EXPECT_EQ(LeftStrip(" \n"), "");
  EXPECT_EQ(Capitalize("éCOLE ÜBER"), "École über");
  EXPECT_EQ(Capitalize(""), "");
  EXPECT_EQ(CharacterCount("aé中😀"), 4);
}

TEST(ChoiceScores, AgreeWithAHandComputedCase) {
  ChoiceTask task{
      "t",
      true,
      {{"", {"long one", "ab"}, 0}, {"", {"x", "y"}, 1}, {"", {"x", "yy"}, 0}, {"", {"é", "ab"}, 0}}};
  // Sums: right, right, wrong (-1.5 < -1.2), right (of equals the first). Per character: -1.1/8 against
  // -1.2/2 right; right; -1.5 against -0.6 wrong; é is one character: -3 against -1.5 wrong.
  const ChoiceResult result = ScoreChoices(task, {{-1.1, -1.2}, {-2, -1}, {-1.5, -1.2}, {-3, -3}});
  EXPECT_EQ(result.accuracy.mean, 0.75);
  EXPECT_EQ(result.normalized_accuracy.mean, 0.5);
  // Sample variance of {1, 1, 0, 1} is 0.25, of {1, 1, 0, 0} 1/3.
  EXPECT_NEAR(result.accuracy.standard_error, std::sqrt(0.25 / 4), 1e-12);
  EXPECT_NEAR(result.normalized_accuracy.standard_error, std::sqrt(1.0 / 12), 1e-12);
  ChoiceResult plain = result;
  plain.length_normalized = false;
  const Proportion average = MacroAverage({result, plain});
  EXPECT_NEAR(average.mean, 0.625, 1e-12);
  EXPECT_NEAR(average.standard_error, std::sqrt(0.25 / 4 + 1.0 / 12) / 2, 1e-12);
}

// A model with weights that are no accident, and a task of items of many lengths.
class ChoiceModel : public ::testing::Test {
 protected:
  ChoiceModel() {
    exported_.model = *MakeModel({.preset = "llama-1m"});
    exported_.tokenizer = MakeByteTokenizer();
    for (size_t i = 0; i < exported_.model->shape().parameters.size(); ++i) {
      at::Tensor tensor = at::empty(exported_.model->shape().parameters[i].dims);
      exported_.model->Initialize(static_cast<int>(i), 3, tensor);
      exported_.weights.push_back(tensor * (tensor.dim() > 1 ? 4 : 1));  // far from uniform
    }
    std::mt19937 random(5);
    for (int i = 0; i < 9; ++i) {
      ChoiceItem item{
          std::string(4 + random() % 3 * 7, static_cast<char>('a' + i)) + (i % 4 == 0 ? " " : ""), {}, 0};
      for (unsigned c = 0; c < 2 + random() % 3; ++c)
        item.choices.push_back(std::string(1 + random() % 6, static_cast<char>('p' + c)));
      task_.items.push_back(item);
    }
  }

  // One request at a time through the model's loss.
  double Plain(const ChoiceItem& item, size_t choice, int64_t max_length = 1 << 20) {
    const EncodedChoice encoded = *EncodeChoice(*exported_.tokenizer, item.context, item.choices[choice]);
    std::vector<int64_t> all(encoded.context.begin(), encoded.context.end());
    all.insert(all.end(), encoded.continuation.begin(), encoded.continuation.end());
    if (static_cast<int64_t>(all.size()) > max_length + 1)
      all.erase(all.begin(), all.end() - (max_length + 1));
    const auto length = static_cast<int64_t>(all.size()) - 1;
    const at::Tensor tokens = at::tensor(all, at::kLong);
    Batch batch{tokens.narrow(0, 0, length).unsqueeze(0), tokens.narrow(0, 1, length).unsqueeze(0).clone(),
                length};
    batch.targets.narrow(1, 0, length - static_cast<int64_t>(encoded.continuation.size()))
        .fill_(kIgnoredTarget);
    const at::NoGradGuard no_grad;
    WholeRunner runner;
    return -exported_.model->Loss(exported_.weights, batch, runner).item<double>();
  }

  ExportedModel exported_;
  ChoiceTask task_{"t", true, {}};
};

TEST_F(ChoiceModel, SharedContextsInBatchesGiveWhatEachRequestGivesAlone) {
  for (int64_t batch : {1, 3, 100}) {
    int64_t truncated = 0;
    const auto likelihoods = ChoiceLikelihoods(exported_, task_, {.batch = batch}, &truncated);
    ASSERT_OK(likelihoods);
    EXPECT_EQ(truncated, 0);
    for (size_t i = 0; i < task_.items.size(); ++i) {
      for (size_t c = 0; c < task_.items[i].choices.size(); ++c) {
        // fp32 in another order over logits of some units.
        EXPECT_NEAR((*likelihoods)[i][c], Plain(task_.items[i], c), 1e-3) << i << " " << c;
      }
    }
  }
}

TEST_F(ChoiceModel, OfALongContextTheEndIsReadAndTheCutIsCounted) {
  int64_t truncated = 0;
  const auto likelihoods = ChoiceLikelihoods(exported_, task_, {.max_length = 9}, &truncated);
  ASSERT_OK(likelihoods);
  EXPECT_GT(truncated, 3);
  for (size_t i = 0; i < task_.items.size(); ++i) {
    for (size_t c = 0; c < task_.items[i].choices.size(); ++c) {
      EXPECT_NEAR((*likelihoods)[i][c], Plain(task_.items[i], c, 9), 1e-3) << i << " " << c;
    }
  }
  task_.items[2].choices[1] = "longer than that";
  const absl::Status status = ChoiceLikelihoods(exported_, task_, {.max_length = 9}, &truncated).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("item 3, choice 2: is 17 tokens, the model reads 9"));
}

TEST_F(ChoiceModel, WhiteSpaceAtTheEndOfAContextBelongsToTheContinuation) {
  const EncodedChoice encoded = *EncodeChoice(*exported_.tokenizer, "ab \n", "c");
  EXPECT_EQ(encoded.context, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(encoded.continuation, (std::vector<int32_t>{' ', '\n', ' ', 'c'}));
  EXPECT_EQ(EncodeChoice(*exported_.tokenizer, "", "c")->context, (std::vector<int32_t>{256}))
      << "the begin token";
}

}  // namespace
}  // namespace tessera::worker

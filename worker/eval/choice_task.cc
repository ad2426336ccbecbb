#include "worker/eval/choice_task.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker/data/text_file.h"
#include "worker/eval/python_text.h"

namespace tessera::worker {
namespace {

using nlohmann::json;

// What is wrong with a line; becomes a status with file and line.
struct BadLine {
  std::string message;
};

const json& Field(const json& object, const std::string& name) {
  if (!object.is_object() || !object.contains(name))
    throw BadLine{absl::StrCat("field '", name, "' is missing")};
  return object.at(name);
}

std::string Text(const json& object, const std::string& name) {
  const json& value = Field(object, name);
  if (!value.is_string()) throw BadLine{absl::StrCat("field '", name, "' is no text but ", value.dump())};
  return value;
}

std::vector<std::string> Texts(const json& object, const std::string& name) {
  const json& value = Field(object, name);
  const bool texts = value.is_array() && std::all_of(value.begin(), value.end(),
                                                     [](const json& item) { return item.is_string(); });
  if (!texts) throw BadLine{absl::StrCat("field '", name, "' is no list of texts but ", value.dump())};
  return value.get<std::vector<std::string>>();
}

// {"text": [...], "label": [...]}, or [{"text": ..., "label": ...}, ...].
std::vector<std::string> Column(const json& choices, const std::string& name) {
  if (!choices.is_array()) return Texts(choices, name);
  std::vector<std::string> column;
  for (const json& choice : choices) column.push_back(Text(choice, name));
  return column;
}

int IndexOf(const std::vector<std::string>& labels, const std::string& answer) {
  const auto found = std::find(labels.begin(), labels.end(), answer);
  if (found == labels.end()) {
    throw BadLine{
        absl::StrCat("field 'answerKey' is '", answer, "', the choices are ", absl::StrJoin(labels, ", "))};
  }
  return static_cast<int>(found - labels.begin());
}

// Of a label that is a number, the same as text, or true and false.
int Number(const json& object, const std::string& name) {
  const json& value = Field(object, name);
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number_integer()) return value.get<int>();
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text.size() == 1 && text[0] >= '0' && text[0] <= '9') return text[0] - '0';
  throw BadLine{absl::StrCat("field '", name, "' is no index of a choice but ", value.dump())};
}

// The question's text and its choices, in either of the two layouts.
std::pair<std::string, const json*> Question(const json& line, const std::string& name) {
  if (line.contains("question") && line["question"].is_object()) {
    return {Text(line["question"], "stem"), &Field(line["question"], "choices")};
  }
  return {Text(line, name), &Field(line, "choices")};
}

ChoiceItem ArcEasy(const json& line) {
  const auto [question, choices] = Question(line, "question");
  return {absl::StrCat("Question: ", question, "\nAnswer:"), Column(*choices, "text"),
          IndexOf(Column(*choices, "label"), Text(line, "answerKey"))};
}

ChoiceItem OpenBookQa(const json& line) {
  const auto [question, choices] = Question(line, "question_stem");
  return {question, Column(*choices, "text"),
          IndexOf(Column(*choices, "label"), std::string(LeftStrip(Text(line, "answerKey"))))};
}

ChoiceItem BoolQ(const json& line) {
  return {absl::StrCat(Text(line, "passage"), "\nQuestion: ", Text(line, "question"), "?\nAnswer:"),
          {"no", "yes"},
          Number(line, line.contains("label") ? "label" : "answer")};
}

ChoiceItem SciQ(const json& line) {
  return {absl::StrCat(std::string(LeftStrip(Text(line, "support"))), "\nQuestion: ", Text(line, "question"),
                       "\nAnswer:"),
          {Text(line, "distractor1"), Text(line, "distractor2"), Text(line, "distractor3"),
           Text(line, "correct_answer")},
          3};
}

// Removes what WikiHow's pages left in the text: [title], [header], [step].
std::string CleanHellaSwag(std::string_view raw) {
  const std::string text = absl::StrReplaceAll(std::string(Strip(raw)), {{" [title]", ". "}});
  std::string kept;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t close = text[at] == '[' ? text.find(']', at) : std::string::npos;
    // A bracket that closes in another line is no mark.
    if (close != std::string::npos && text.find('\n', at) > close) {
      at = close;
    } else {
      kept.push_back(text[at]);
    }
  }
  return absl::StrReplaceAll(kept, {{"  ", " "}});
}

ChoiceItem HellaSwag(const json& line) {
  ChoiceItem item;
  item.context = CleanHellaSwag(absl::StrCat(Text(line, "activity_label"), ": ", Text(line, "ctx_a"), " ",
                                             Capitalize(Text(line, "ctx_b"))));
  for (const std::string& ending : Texts(line, "endings")) item.choices.push_back(CleanHellaSwag(ending));
  item.gold = Number(line, "label");
  return item;
}

struct Format {
  const char* name;
  ChoiceItem (*read)(const json& line);
  bool length_normalized;
};
constexpr Format kFormats[] = {{"arc_easy", ArcEasy, true},
                               {"boolq", BoolQ, false},
                               {"hellaswag", HellaSwag, true},
                               {"openbookqa", OpenBookQa, true},
                               {"sciq", SciQ, true}};

void Check(const ChoiceItem& item) {
  if (item.choices.empty()) throw BadLine{"there is no choice"};
  for (size_t i = 0; i < item.choices.size(); ++i) {
    if (item.choices[i].empty()) throw BadLine{absl::StrCat("choice ", i + 1, " is empty")};
  }
  if (item.gold < 0 || item.gold >= static_cast<int>(item.choices.size())) {
    throw BadLine{
        absl::StrCat("the answer is choice ", item.gold, " of ", item.choices.size(), ", counted from 0")};
  }
}

}  // namespace

std::vector<std::string> ChoiceTaskNames() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

absl::StatusOr<ChoiceTask> ReadChoiceTask(const std::string& name, const std::string& path, int64_t limit) {
  const Format* format = nullptr;
  for (const Format& candidate : kFormats) {
    if (name == candidate.name) format = &candidate;
  }
  if (format == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("task '", name, "' is not known; known are ", absl::StrJoin(ChoiceTaskNames(), ", ")));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  ChoiceTask task{name, format->length_normalized, {}};
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    if (limit > 0 && static_cast<int64_t>(task.items.size()) == limit) break;
    const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
    try {
      if (!parsed.is_object()) throw BadLine{"is no JSON object"};
      task.items.push_back(format->read(parsed));
      Check(task.items.back());
    } catch (const BadLine& bad) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": ", bad.message, " (task ", name, ")"));
    }
  }
  if (task.items.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": holds no items"));
  return task;
}

}  // namespace tessera::worker

// Multiple-choice questions from JSONL files, put into words as lm-evaluation-harness's tasks of the same
// name do (without examples in the prompt).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::worker {

struct ChoiceItem {
  std::string context;
  std::vector<std::string> choices;  // a request is context + " " + choice
  int gold = 0;                      // index of the right one
};

struct ChoiceTask {
  std::string name;
  bool length_normalized = true;  // acc_norm is reported
  std::vector<ChoiceItem> items;
};

// arc_easy, boolq, hellaswag, openbookqa, sciq.
std::vector<std::string> ChoiceTaskNames();

// A line is an object as the task's Hugging Face data set has it, or as its authors published it (arc_easy,
// openbookqa: question.stem and question.choices; boolq: answer). limit 0: all lines. InvalidArgument names
// the task, or file, line and field: no JSON, a field that is missing or of another type, an empty choice, an
// answer that is none of the choices, a file without items.
absl::StatusOr<ChoiceTask> ReadChoiceTask(const std::string& name, const std::string& path, int64_t limit);

}  // namespace tessera::worker

// Scores multiple-choice tasks by the likelihood of their choices, as lm-evaluation-harness does: context and
// continuation are tokenised together, the choice of the largest log-likelihood is the answer (acc), or that
// of the largest log-likelihood per character of the choice (acc_norm).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/eval/choice_task.h"
#include "worker/eval/exported_model.h"

namespace tessera::worker {

struct Proportion {
  double mean = 0;
  double standard_error = 0;  // sample standard deviation / sqrt(n); 0 for one item
};

struct ChoiceResult {
  std::string task;
  int64_t items = 0;
  Proportion accuracy, normalized_accuracy;
  bool length_normalized = true;  // normalized_accuracy is this task's figure
  int64_t truncated = 0;          // requests whose context lost its beginning to the model's length
};

struct ChoiceOptions {
  int64_t batch = 8;       // contexts of equal length computed at a time
  int64_t max_length = 0;  // tokens the model reads; 0: what its config says
};

// A request in tokens.
struct EncodedChoice {
  std::vector<int32_t> context, continuation;
};
// The trailing white space of the context belongs to the continuation; an empty context is the begin token's,
// or the end token's.
absl::StatusOr<EncodedChoice> EncodeChoice(const Tokenizer& tokenizer, std::string context,
                                           const std::string& choice);

// Log-likelihood in nats of each choice of each item. A context is computed once for all its choices, which
// then go on from its keys and values.
absl::StatusOr<std::vector<std::vector<double>>> ChoiceLikelihoods(const ExportedModel& exported,
                                                                   const ChoiceTask& task,
                                                                   const ChoiceOptions& options,
                                                                   int64_t* truncated);

ChoiceResult ScoreChoices(const ChoiceTask& task, const std::vector<std::vector<double>>& likelihoods);

// InvalidArgument: no tokenizer, a token outside the model's vocabulary, or a choice that is longer than the
// model; it names the item.
absl::StatusOr<ChoiceResult> EvaluateChoices(const ExportedModel& exported, const ChoiceTask& task,
                                             const ChoiceOptions& options);

// Over tasks: the mean of each task's figure (acc_norm where it has one, else acc), with the standard error
// of that mean.
Proportion MacroAverage(const std::vector<ChoiceResult>& results);

}  // namespace tessera::worker

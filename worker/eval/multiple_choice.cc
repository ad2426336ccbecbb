// B items or choices, T tokens, V vocabulary.
#include "worker/eval/multiple_choice.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/eval/python_text.h"

namespace tessera::worker {
namespace {

// As lm-evaluation-harness finds it.
int64_t LongestText(const Model& model) {
  const auto config = nlohmann::json::parse(model.HuggingFaceConfig(), nullptr, /*allow_exceptions=*/false);
  for (const char* field : {"n_positions", "max_position_embeddings", "n_ctx"}) {
    if (config.is_object() && config.contains(field) && config[field].is_number_integer())
      return config[field];
  }
  return 2048;
}

// What fits: the last max_length of context and continuation without its last token, which is only predicted.
struct Request {
  size_t item, choice;
  std::vector<int32_t> context, continuation;
};

// Requests that share a context, and so are computed from one.
struct Group {
  std::vector<int32_t> context;
  std::vector<const Request*> requests;
};

at::Tensor ToTensor(const std::vector<std::vector<int32_t>>& rows) {
  const auto length = static_cast<int64_t>(rows[0].size());
  at::Tensor tokens = at::empty({static_cast<int64_t>(rows.size()), length}, at::kLong);
  for (size_t r = 0; r < rows.size(); ++r) {
    std::copy(rows[r].begin(), rows[r].end(),
              tokens.mutable_data_ptr<int64_t>() + static_cast<int64_t>(r) * length);
  }
  return tokens;
}

// Row i of the result goes on from row source[i] of the state.
DecodingState Branch(const DecodingState& state, const std::vector<int64_t>& source) {
  const at::Tensor index = at::tensor(source, at::kLong);
  DecodingState branched;
  branched.positions = state.positions;
  for (const DecodingState::Block& block : state.blocks) {
    branched.blocks.push_back({block.keys.index_select(0, index), block.values.index_select(0, index)});
  }
  return branched;
}

// Contexts of one length, and all that goes on from them.
class ChoiceBatch {
 public:
  ChoiceBatch(const ExportedModel& exported, const TextGenerator& generator,
              const std::vector<const Group*>& groups)
      : exported_(exported), generator_(generator) {
    std::vector<std::vector<int32_t>> contexts;
    size_t longest = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      contexts.push_back(groups[g]->context);
      for (const Request* request : groups[g]->requests) {
        requests_.push_back(request);
        source_.push_back(static_cast<int64_t>(g));
        longest = std::max(longest, request->continuation.size());
      }
    }
    sums_.resize(requests_.size());
    DecodingState state;
    const at::Tensor first = Next(ToTensor(contexts), state).index_select(0, at::tensor(source_, at::kLong));
    Add(first, 0);
    if (longest > 1) GoOn(Branch(state, source_), longest);
  }

  void Tell(std::vector<std::vector<double>>* likelihoods) const {
    for (size_t r = 0; r < requests_.size(); ++r) {
      (*likelihoods)[requests_[r]->item][requests_[r]->choice] = sums_[r];
    }
  }

 private:
  // -> log-probabilities of the token after `tokens_BT`, [B, V].
  at::Tensor Next(const at::Tensor& tokens_BT, DecodingState& state) {
    const at::Tensor logits = generator_.Decode(exported_.weights, tokens_BT, runner_, state);
    return at::log_softmax(logits.select(1, 0).to(at::kFloat), -1);
  }

  // Rows are in step; those that are at their end go along with any token.
  void GoOn(DecodingState state, size_t longest) {
    for (size_t t = 0; t + 1 < longest; ++t) {
      std::vector<std::vector<int32_t>> tokens;
      for (const Request* request : requests_) {
        tokens.push_back({t < request->continuation.size() ? request->continuation[t] : 0});
      }
      Add(Next(ToTensor(tokens), state), t + 1);
    }
  }

  void Add(const at::Tensor& log_probabilities_BV, size_t position) {
    for (size_t r = 0; r < requests_.size(); ++r) {
      if (position >= requests_[r]->continuation.size()) continue;
      const int64_t token = requests_[r]->continuation[position];
      sums_[r] += log_probabilities_BV[static_cast<int64_t>(r)][token].item<double>();
    }
  }

  const ExportedModel& exported_;
  const TextGenerator& generator_;
  WholeRunner runner_;
  std::vector<const Request*> requests_;
  std::vector<int64_t> source_;  // row of its context, by request
  std::vector<double> sums_;
};

absl::Status CheckTokens(const std::vector<int32_t>& tokens, int64_t vocabulary, const std::string& where) {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": token ", token, " is outside the model's vocabulary of ", vocabulary));
  }
  return absl::OkStatus();
}

absl::StatusOr<Request> MakeRequest(const ExportedModel& exported, const ChoiceTask& task, size_t item,
                                    size_t choice, int64_t max_length, int64_t* truncated) {
  const ChoiceItem& asked = task.items[item];
  const std::string where = absl::StrCat(task.name, " item ", item + 1, ", choice ", choice + 1);
  auto encoded = EncodeChoice(*exported.tokenizer, asked.context, asked.choices[choice]);
  if (!encoded.ok()) return absl::InvalidArgumentError(absl::StrCat(where, ": ", encoded.status().message()));
  Request request{item, choice, std::move(encoded->context), std::move(encoded->continuation)};
  for (const auto* tokens : {&request.context, &request.continuation}) {
    TESSERA_RETURN_IF_ERROR(CheckTokens(*tokens, exported.model->shape().vocab_size, where));
  }
  const auto continuation = static_cast<int64_t>(request.continuation.size());
  if (continuation == 0) return absl::InvalidArgumentError(absl::StrCat(where, ": has no token of its own"));
  if (continuation > max_length) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": is ", continuation, " tokens, the model reads ", max_length));
  }
  const int64_t room = max_length + 1 - continuation;
  const int64_t surplus = static_cast<int64_t>(request.context.size()) - room;
  if (surplus > 0) {
    request.context.erase(request.context.begin(), request.context.begin() + surplus);
    ++*truncated;
  }
  return request;
}

}  // namespace

absl::StatusOr<EncodedChoice> EncodeChoice(const Tokenizer& tokenizer, std::string context,
                                           const std::string& choice) {
  std::string continuation = " " + choice;
  EncodedChoice encoded;
  if (context.empty()) {
    const int32_t prefix = tokenizer.begin_token() >= 0 ? tokenizer.begin_token() : tokenizer.end_token();
    encoded.continuation = tokenizer.Encode(continuation);
    if (prefix < 0)
      return absl::InvalidArgumentError("the context is empty, and the tokenizer names no begin token");
    encoded.context = {prefix};
    if (!encoded.continuation.empty() && encoded.continuation[0] == prefix) {
      encoded.continuation.erase(encoded.continuation.begin());
    }
    return encoded;
  }
  const size_t kept = RightStrip(context).size();
  continuation.insert(0, context.substr(kept));
  context.resize(kept);
  std::vector<int32_t> whole = tokenizer.EncodeWhole(context + continuation);
  encoded.context = tokenizer.EncodeWhole(context);
  if (encoded.context.empty()) return absl::InvalidArgumentError("the context is only white space");
  const size_t length = std::min(encoded.context.size(), whole.size());
  encoded.continuation.assign(whole.begin() + static_cast<int64_t>(length), whole.end());
  return encoded;
}

absl::StatusOr<std::vector<std::vector<double>>> ChoiceLikelihoods(const ExportedModel& exported,
                                                                   const ChoiceTask& task,
                                                                   const ChoiceOptions& options,
                                                                   int64_t* truncated) {
  const auto* generator = dynamic_cast<const TextGenerator*>(exported.model.get());
  if (generator == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("a model of the family ", exported.model->shape().model,
                     " does not continue texts, so it can't choose between endings"));
  }
  if (exported.tokenizer == nullptr) return absl::InvalidArgumentError("the model's folder has no tokenizer");
  const c10::InferenceMode inference;
  const int64_t max_length = options.max_length > 0 ? options.max_length : LongestText(*exported.model);
  std::vector<Request> requests;
  std::vector<std::vector<double>> likelihoods;
  for (size_t item = 0; item < task.items.size(); ++item) {
    likelihoods.emplace_back(task.items[item].choices.size());
    for (size_t choice = 0; choice < task.items[item].choices.size(); ++choice) {
      TESSERA_ASSIGN_OR_RETURN(Request request,
                               MakeRequest(exported, task, item, choice, max_length, truncated));
      requests.push_back(std::move(request));
    }
  }
  // By length: the order of the items decides within.
  std::map<size_t, std::vector<Group>> by_length;
  for (const Request& request : requests) {
    std::vector<Group>& groups = by_length[request.context.size()];
    if (groups.empty() || groups.back().context != request.context ||
        groups.back().requests.front()->item != request.item) {
      groups.push_back({request.context, {}});
    }
    groups.back().requests.push_back(&request);
  }
  for (const auto& [length, groups] : by_length) {
    for (size_t first = 0; first < groups.size(); first += static_cast<size_t>(options.batch)) {
      std::vector<const Group*> part;
      for (size_t g = first; g < std::min(groups.size(), first + static_cast<size_t>(options.batch)); ++g) {
        part.push_back(&groups[g]);
      }
      ChoiceBatch(exported, *generator, part).Tell(&likelihoods);
    }
  }
  return likelihoods;
}

namespace {

Proportion ProportionOf(const std::vector<bool>& right) {
  const auto n = static_cast<double>(right.size());
  const double mean = static_cast<double>(std::count(right.begin(), right.end(), true)) / n;
  // Of zeros and ones the sum of squared deviations is n p (1 - p).
  return {mean, n > 1 ? std::sqrt(mean * (1 - mean) / (n - 1)) : 0};
}

}  // namespace

ChoiceResult ScoreChoices(const ChoiceTask& task, const std::vector<std::vector<double>>& likelihoods) {
  std::vector<bool> right, right_normalized;
  for (size_t i = 0; i < task.items.size(); ++i) {
    std::vector<double> per_character = likelihoods[i];
    for (size_t c = 0; c < per_character.size(); ++c) {
      per_character[c] /= static_cast<double>(CharacterCount(task.items[i].choices[c]));
    }
    // Of equals the first.
    const auto best = [](const std::vector<double>& values) {
      return static_cast<int>(std::max_element(values.begin(), values.end()) - values.begin());
    };
    right.push_back(best(likelihoods[i]) == task.items[i].gold);
    right_normalized.push_back(best(per_character) == task.items[i].gold);
  }
  ChoiceResult result;
  result.task = task.name;
  result.items = static_cast<int64_t>(task.items.size());
  result.accuracy = ProportionOf(right);
  result.normalized_accuracy = ProportionOf(right_normalized);
  result.length_normalized = task.length_normalized;
  return result;
}

absl::StatusOr<ChoiceResult> EvaluateChoices(const ExportedModel& exported, const ChoiceTask& task,
                                             const ChoiceOptions& options) {
  int64_t truncated = 0;
  TESSERA_ASSIGN_OR_RETURN(const auto likelihoods, ChoiceLikelihoods(exported, task, options, &truncated));
  ChoiceResult result = ScoreChoices(task, likelihoods);
  result.truncated = truncated;
  return result;
}

Proportion MacroAverage(const std::vector<ChoiceResult>& results) {
  Proportion average;
  double variance = 0;
  for (const ChoiceResult& result : results) {
    const Proportion& figure = result.length_normalized ? result.normalized_accuracy : result.accuracy;
    average.mean += figure.mean / static_cast<double>(results.size());
    variance += figure.standard_error * figure.standard_error;
  }
  average.standard_error = std::sqrt(variance) / static_cast<double>(results.size());
  return average;
}

}  // namespace tessera::worker

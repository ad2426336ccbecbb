#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "worker/checkpoint/durable_file.h"
#include "worker/data/token_dataset.h"
#include "worker/eval/command_line.h"
#include "worker/eval/commands.h"
#include "worker/eval/evaluate.h"
#include "worker/eval/multiple_choice.h"

namespace tessera::worker {
namespace {

using nlohmann::ordered_json;

struct EvalArguments {
  std::string model, data, logits, output;
  std::vector<std::string> tasks;  // NAME=FILE
  int64_t limit = 0;
  EvaluateOptions perplexity;
  ChoiceOptions choices;
  bool json = false;
};

struct EvalResults {
  std::optional<Evaluation> perplexity;
  std::vector<ChoiceResult> tasks;
};

absl::StatusOr<std::vector<ChoiceTask>> ReadTasks(const EvalArguments& arguments) {
  std::vector<ChoiceTask> tasks;
  for (const std::string& argument : arguments.tasks) {
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("--task ", argument, ": must be NAME=FILE, NAME one of ",
                                                     absl::StrJoin(ChoiceTaskNames(), ", ")));
    }
    TESSERA_ASSIGN_OR_RETURN(ChoiceTask task, ReadChoiceTask(argument.substr(0, equals),
                                                             argument.substr(equals + 1), arguments.limit));
    tasks.push_back(std::move(task));
  }
  return tasks;
}

absl::StatusOr<EvalResults> Evaluate(const EvalArguments& arguments) {
  if (arguments.data.empty() && arguments.tasks.empty()) {
    return absl::InvalidArgumentError("nothing to evaluate: give --data, --task, or both");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<ChoiceTask> tasks, ReadTasks(arguments));  // bad lines first
  std::unique_ptr<TokenDataset> dataset;
  if (!arguments.data.empty()) {
    TESSERA_ASSIGN_OR_RETURN(dataset, OpenTokenDataset(arguments.data, DataPart::kValidation));
  }
  TESSERA_ASSIGN_OR_RETURN(const ExportedModel exported, OpenExportedModel(arguments.model));
  EvalResults results;
  if (dataset != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(results.perplexity, Evaluate(exported, *dataset, arguments.perplexity));
    if (!arguments.logits.empty()) {
      TESSERA_RETURN_IF_ERROR(DumpLogits(exported, *dataset, /*samples=*/2,
                                         arguments.perplexity.sequence_length, arguments.logits));
    }
  }
  for (const ChoiceTask& task : tasks) {
    TESSERA_ASSIGN_OR_RETURN(ChoiceResult result, EvaluateChoices(exported, task, arguments.choices));
    results.tasks.push_back(std::move(result));
  }
  return results;
}

ordered_json ToJson(const EvalResults& results) {
  ordered_json root = ordered_json::object();
  if (results.perplexity.has_value()) {
    root["tokens"] = results.perplexity->tokens;
    root["data_tokens"] = results.perplexity->data_tokens;
    root["loss"] = results.perplexity->loss;
    root["perplexity"] = results.perplexity->perplexity;
    root["bits_per_byte"] = results.perplexity->bits_per_byte;
  }
  for (const ChoiceResult& task : results.tasks) {
    ordered_json entry = {
        {"items", task.items}, {"acc", task.accuracy.mean}, {"acc_stderr", task.accuracy.standard_error}};
    if (task.length_normalized) {
      entry["acc_norm"] = task.normalized_accuracy.mean;
      entry["acc_norm_stderr"] = task.normalized_accuracy.standard_error;
    }
    entry["truncated"] = task.truncated;
    root["tasks"][task.task] = std::move(entry);
  }
  if (!results.tasks.empty()) {
    const Proportion average = MacroAverage(results.tasks);
    root["macro_average"] = {{"mean", average.mean}, {"stderr", average.standard_error}};
  }
  return root;
}

void Print(const EvalResults& results) {
  if (const auto& data = results.perplexity; data.has_value()) {
    std::printf("tokens %lld of %lld\nloss %.6f\nperplexity %.4f\nbits per byte %.4f\n",
                static_cast<long long>(data->tokens), static_cast<long long>(data->data_tokens), data->loss,
                data->perplexity, data->bits_per_byte);
  }
  if (results.tasks.empty()) return;
  std::printf("%-14s %6s  %-16s %s\n", "task", "items", "acc", "acc_norm");
  for (const ChoiceResult& task : results.tasks) {
    std::printf("%-14s %6lld  %.4f +- %.4f", task.task.c_str(), static_cast<long long>(task.items),
                task.accuracy.mean, task.accuracy.standard_error);
    if (task.length_normalized) {
      std::printf(" %.4f +- %.4f", task.normalized_accuracy.mean, task.normalized_accuracy.standard_error);
    }
    if (task.truncated > 0) std::printf("  (%lld contexts cut)", static_cast<long long>(task.truncated));
    std::printf("\n");
  }
  const Proportion average = MacroAverage(results.tasks);
  std::printf("macro average  %.4f +- %.4f\n", average.mean, average.standard_error);
}

void AddOptions(CLI::App& app, EvalArguments& arguments) {
  app.add_option("--model", arguments.model, "folder with config.json and model.safetensors, or a checkpoint")
      ->required();
  app.add_option("--data", arguments.data,
                 "shard file, glob, or folder (of prepared text: its validation shards)");
  app.add_option("--tokens", arguments.perplexity.tokens, "the data's first so many tokens; 0: all")
      ->capture_default_str();
  app.add_option("--sequence-length", arguments.perplexity.sequence_length, "tokens per sample of --data")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--task", arguments.tasks,
                 absl::StrCat("NAME=FILE, a JSONL file of one of ", absl::StrJoin(ChoiceTaskNames(), ", "),
                              "; may be given several times"));
  app.add_option("--limit", arguments.limit, "items of each task, from the first; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--max-length", arguments.choices.max_length,
                 "tokens the model reads at most, of a task's longer texts the last; 0: as its config says")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--batch", arguments.perplexity.batch, "samples, or contexts of a task, at a time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--output", arguments.output, "write the results here as JSON");
  app.add_option("--dump-logits", arguments.logits,
                 "write the first two samples' tokens and logits here (safetensors)");
  app.add_flag("--json", arguments.json, "one JSON object instead of lines");
}

}  // namespace

int RunEval(int argc, char** argv) {
  EvalArguments arguments;
  CLI::App app("Evaluates a model: loss on token shards, accuracy on multiple-choice tasks", "eval");
  AddOptions(app, arguments);
  return RunCommand(app, argc, argv, [&]() -> absl::Status {
    arguments.choices.batch = arguments.perplexity.batch;
    TESSERA_ASSIGN_OR_RETURN(const EvalResults results, Evaluate(arguments));
    if (arguments.json) {
      std::printf("%s\n", ToJson(results).dump().c_str());
    } else {
      Print(results);
    }
    if (arguments.output.empty()) return absl::OkStatus();
    return WriteDurably(arguments.output, ToJson(results).dump(2) + "\n");
  });
}

}  // namespace tessera::worker
